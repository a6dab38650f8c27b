//! Compares the bullets of MEMORY.md with the recorded ones, to find the edits of a person.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};

use super::memory_page::Bullet;
use crate::memory::MemoryOwner;
use crate::text::{comparison_key, one_line};

/// A bullet as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBullet {
    /// The memory that the bullet states.
    pub id: i64,
    /// The owner of the memory.
    pub owner: MemoryOwner,
    pub hash: String,
    /// The text of the memory.
    pub text: String,
}

/// The edits of a page. Bullets are given by their position in the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPageDiff {
    pub unchanged: Vec<(i64, usize)>,
    /// Bullets that were moved to the section of another owner.
    pub moved: Vec<(i64, usize)>,
    pub changed: Vec<(i64, usize)>,
    pub added: Vec<usize>,
    pub removed: Vec<i64>,
}

/// The minimum similarity of a changed bullet and its former text, in the same place and anywhere, from 0 to 1.
const MIN_SIMILARITY_IN_PLACE: f64 = 0.3;
const MIN_SIMILARITY: f64 = 0.6;

/// The maximum number of pairs of lines that are compared by their characters, which takes some tens of milliseconds.
const MAX_PAIRS: usize = 2_500;

/// Returns the hash that identifies a bullet.
pub fn hash(text: &str) -> String {
    hex(&Sha256::digest(one_line(text))[..8])
}

/// Compares the recorded bullets, in their order, with those of the page.
pub fn diff(recorded: &[KnownBullet], bullets: &[Bullet]) -> MemoryPageDiff {
    let hashes: Vec<String> = bullets.iter().map(|bullet| hash(&bullet.text)).collect();
    let mut of_hash: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, hash) in hashes.iter().enumerate() {
        of_hash.entry(hash).or_default().push(at);
    }
    let mut found = MemoryPageDiff::default();
    // The bullet of each recorded line.
    let mut matches: Vec<Option<usize>> = vec![None; recorded.len()];
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    for is_same_section in [true, false] {
        for (place, before) in recorded.iter().enumerate().filter(|(_, before)| !before.hash.is_empty()) {
            if matches[place].is_some() {
                continue;
            }
            let is_it = |at: &usize| (bullets[*at].owner == before.owner) == is_same_section && !taken.contains(at);
            if let Some(at) = of_hash.get(before.hash.as_str()).and_then(|all| all.iter().copied().find(is_it)) {
                matches[place] = Some(at);
                taken.insert(at);
                let list = if is_same_section { &mut found.unchanged } else { &mut found.moved };
                list.push((before.id, at));
            }
        }
    }
    pair_changed(recorded, bullets, &mut matches, &mut taken, &mut found);
    found.added = (0..bullets.len()).filter(|at| !taken.contains(at)).collect();
    found.removed = recorded.iter().zip(&matches).filter(|(_, at)| at.is_none()).map(|(before, _)| before.id).collect();
    found
}

/// Pairs new bullets with missing lines that are similar.
fn pair_changed(
    recorded: &[KnownBullet],
    bullets: &[Bullet],
    matches: &mut [Option<usize>],
    taken: &mut BTreeSet<usize>,
    found: &mut MemoryPageDiff,
) {
    let missing = unmatched_by_gap(recorded.iter().zip(&*matches).map(|(line, at)| (&line.owner, *at)));
    let at_matched = bullets.iter().enumerate().map(|(at, bullet)| (&bullet.owner, taken.contains(&at).then_some(at)));
    let mut new = unmatched_by_gap(at_matched);
    let mut pair = |place: usize, at: usize| {
        matches[place] = Some(at);
        taken.insert(at);
        found.changed.push((recorded[place].id, at));
    };
    // Bullets that were changed together, as by search and replace, keep their order.
    let (mut missing_still, mut new_still) = (Vec::new(), Vec::new());
    for (gap, mut places) in missing {
        let mut there = new.remove(&gap).unwrap_or_default();
        if places.len() == there.len() {
            let is_same =
                |(place, at): &(usize, usize)| similarity(&recorded[*place].text, &bullets[*at].text) >= MIN_SIMILARITY;
            let same: Vec<_> = places.iter().copied().zip(there.iter().copied()).filter(is_same).collect();
            same.iter().for_each(|(place, at)| pair(*place, *at));
            places.retain(|place| same.iter().all(|(paired, _)| paired != place));
            there.retain(|at| same.iter().all(|(_, paired)| paired != at));
        }
        pair_best(&mut places, &mut there, recorded, bullets, MIN_SIMILARITY_IN_PLACE, &mut pair);
        missing_still.extend(places);
        new_still.extend(there);
    }
    new_still.extend(new.into_values().flatten());
    new_still.sort_unstable();
    pair_best(&mut missing_still, &mut new_still, recorded, bullets, MIN_SIMILARITY, &mut pair);
}

/// A place between two bullets that a person has not changed: the section, and the bullet before it.
type Gap<'a> = (&'a MemoryOwner, Option<usize>);

/// Groups the positions of lines that have no bullet on the page, by their gaps. `lines` gives the owner and the bullet of each
/// line.
fn unmatched_by_gap<'a>(
    lines: impl Iterator<Item = (&'a MemoryOwner, Option<usize>)>,
) -> BTreeMap<Gap<'a>, Vec<usize>> {
    let mut unmatched: BTreeMap<Gap<'a>, Vec<usize>> = BTreeMap::new();
    let mut before: BTreeMap<&MemoryOwner, usize> = BTreeMap::new();
    for (place, (owner, bullet)) in lines.enumerate() {
        match bullet {
            Some(at) => drop(before.insert(owner, at)),
            None => unmatched.entry((owner, before.get(owner).copied())).or_default().push(place),
        }
    }
    unmatched
}

/// Pairs each missing line with the most similar new bullet, if it is similar enough. Too many pairs are not compared, and
/// count as different.
fn pair_best(
    places: &mut Vec<usize>,
    there: &mut Vec<usize>,
    recorded: &[KnownBullet],
    bullets: &[Bullet],
    least: f64,
    pair: &mut impl FnMut(usize, usize),
) {
    if places.len() * there.len() > MAX_PAIRS {
        return;
    }
    places.retain(|place| {
        let scored = |at: usize| (at, similarity(&recorded[*place].text, &bullets[at].text));
        let best = there.iter().copied().map(scored).max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let Some((at, _)) = best.filter(|(_, similarity)| *similarity >= least) else { return true };
        pair(*place, at);
        there.retain(|other| *other != at);
        false
    });
}

/// Returns the share of character pairs that two texts have in common, from 0 to 1 (Dice's coefficient).
fn similarity(one: &str, other: &str) -> f64 {
    let pairs = |text: &str| {
        let chars: Vec<char> = comparison_key(text).chars().collect();
        chars.windows(2).map(|pair| (pair[0], pair[1])).collect::<BTreeSet<_>>()
    };
    let (one, other) = (pairs(one), pairs(other));
    2.0 * one.intersection(&other).count() as f64 / (one.len() + other.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: &[&str]) -> Vec<Bullet> {
        let mut owner = MemoryOwner::everyone();
        let mut found = Vec::new();
        for line in lines {
            if *line == "---" {
                owner = MemoryOwner::gateway();
            } else {
                found.push(Bullet { range: 0..0, owner: owner.clone(), text: (*line).to_owned() });
            }
        }
        found
    }

    #[test]
    fn edits_of_the_page_are_detected() {
        let before = ["I like tea", "My cat is Momo", "---", "The PIN is 4711", "我住在北京"];
        let recorded: Vec<KnownBullet> = (1..)
            .zip(page(&before))
            .map(|(id, bullet)| KnownBullet { id, owner: bullet.owner, hash: hash(&bullet.text), text: bullet.text })
            .collect();
        let case = |lines: &[&str]| diff(&recorded, &page(lines));
        let all = || vec![(1, 0), (2, 1), (3, 2), (4, 3)];
        assert_eq!(case(&before), MemoryPageDiff { unchanged: all(), ..MemoryPageDiff::default() });
        let more = case(&["I like tea", "My cat is Momo", "Rust is used", "---", "The PIN is 4711", "我住在北京"]);
        assert_eq!((more.added, more.unchanged.len()), (vec![2], 4));
        let fewer = case(&["My cat is Momo", "---", "The PIN is 4711", "我住在北京"]);
        assert_eq!((fewer.removed, fewer.added), (vec![1], vec![]));
        let changed = case(&["I like tea", "My cat is Nini", "---", "The PIN is 4712", "我住在上海"]);
        assert_eq!(changed.changed, [(2, 1), (3, 2), (4, 3)]);
        let moved = case(&["I like tea", "---", "My cat is Momo", "The PIN is 4711", "我住在北京"]);
        assert_eq!((moved.moved, moved.removed, moved.added), (vec![(2, 1)], vec![], vec![]));
        let turned = case(&["My cat is Momo", "I like tea", "---", "我住在北京", "The PIN is 4711"]);
        assert_eq!((turned.unchanged.len(), turned.removed.len(), turned.added.len()), (4, 0, 0));
        let other = case(&["I like tea", "Winter was long here", "---", "The PIN is 4711", "我住在北京"]);
        assert_eq!(
            (other.removed, other.added, other.changed),
            (vec![2], vec![1], vec![]),
            "another text in the same place"
        );
        assert_eq!(case(&[]).removed, [1, 2, 3, 4]);
    }
}
