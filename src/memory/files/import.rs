//! Synchronizes MEMORY.md with the store: applies the edits of the page to the store, and adds new memories to the page.

use super::diff::{self, KnownBullet, MemoryPageDiff};
use super::memory_page::{self, Bullet};
use crate::memory::forgetting::{drop_prompt_snapshots, forget};
use crate::memory::remember::{remember, remember_replacing};
use crate::memory::{
    Identities, MemoryConfig, MemoryKind, MemoryOrigin, MemoryOwner, NewMemoryEntry, RememberOutcome, owner_label,
    parse_owner, validate_entry, vectors, word_index,
};
use crate::store::memory_lines::{self, LineRow};
use crate::store::{Connection, StoreError, memories, memory_queries};

/// The new page, and the records to write once the page is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedPage {
    pub text: String,
    /// The memories that the new page adds.
    pub more: NewBullets,
    /// The memories whose bullets the new page lacks.
    pub gone: Vec<i64>,
}

/// The number of bullets that must be missing at once for a page to look incomplete, if they are also the majority. Such a
/// page, if it was written just now, is read again later.
const MIN_SUSPECT_LOSS: usize = 2;

/// The length of the page up to which it shows the memories of other people, in bytes. Beyond it, they are only in the store.
const OTHERS_PAGE_BYTES: usize = 1_000_000;

/// The settings for reading and writing a page.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPageContext<'a> {
    pub config: &'a MemoryConfig,
    pub identities: &'a Identities,
    /// The heading above private bullets.
    pub heading: &'a str,
}

/// Applies the edits of `page` to the store, in the caller's write. `redact` removes secrets. Returns `None` if much of the
/// page is missing and the page was written just now: the caller reads it again later.
///
/// # Errors
/// The store cannot be written.
pub fn import(
    connection: &Connection,
    page: &str,
    is_fresh: bool,
    context: MemoryPageContext<'_>,
    redact: impl Fn(&mut NewMemoryEntry),
) -> Result<Option<RenderedPage>, StoreError> {
    let MemoryPageContext { config, identities, heading } = context;
    let owners: Vec<MemoryOwner> = memory_queries::facts_of_owners(connection)?
        .iter()
        .map(|facts| MemoryOwner::from_stored(&facts.owner))
        .collect();
    let owner_of = |name: &str| owner_of_name(name, identities, &owners);
    let (rows, stale): (Vec<LineRow>, Vec<LineRow>) =
        memory_lines::all(connection)?.into_iter().partition(|row| row.text.is_some());
    let mut bullets = memory_page::parse_bullets(page, owner_of);
    let mut removed = Vec::new();
    for row in &stale {
        let is_it = |bullet: &Bullet| bullet.owner.as_str() == row.owner && diff::hash(&bullet.text) == row.hash;
        if let Some(at) = bullets.iter().position(is_it) {
            removed.push(bullets.remove(at).range);
        }
    }
    let recorded: Vec<KnownBullet> = rows
        .iter()
        .map(|row| KnownBullet {
            id: row.memory,
            owner: MemoryOwner::from_stored(&row.owner),
            hash: row.hash.clone(),
            text: row.text.clone().unwrap_or_default(),
        })
        .collect();
    let edits = diff::diff(&recorded, &bullets);
    if is_fresh && edits.removed.len() >= MIN_SUSPECT_LOSS && edits.removed.len() * 2 > recorded.len() {
        return Ok(None);
    }
    let mut lines = apply_diff(connection, &edits, &bullets, config, redact)?;
    lines.sort_by_key(|(_, at)| *at);
    if recorded.iter().map(|line| line.id).ne(lines.iter().map(|(id, _)| *id))
        || !edits.changed.is_empty()
        || !edits.moved.is_empty()
    {
        // An import of one bullet may have replaced the memory of another bullet.
        let mut current = Vec::with_capacity(lines.len());
        for (id, at) in lines {
            let is_known = memories::find(connection, id)?.is_some_and(|row| row.replaced_by.is_none());
            if is_known { current.push((id, at)) } else { removed.push(bullets[at].range.clone()) }
        }
        record(connection, &current, &bullets, &stale)?;
    }
    let text = memory_page::remove_ranges(page, &removed);
    let (text, more) = add_missing(connection, text, &owners, heading, owner_of)?;
    Ok(Some(RenderedPage { text, more, gone: stale.into_iter().map(|row| row.memory).collect() }))
}

/// The facts that the page adds: id, owner and hash.
type NewBullets = Vec<(i64, MemoryOwner, String)>;

/// Adds all current memories that the page lacks.
fn add_missing(
    connection: &Connection,
    mut text: String,
    owners: &[MemoryOwner],
    heading: &str,
    owner_of: impl Fn(&str) -> MemoryOwner + Copy,
) -> Result<(String, NewBullets), StoreError> {
    let mut more = Vec::new();
    let (own, everyone) = (MemoryOwner::gateway(), MemoryOwner::everyone());
    let others = owners.iter().filter(|owner| **owner != own && **owner != everyone);
    for owner in [&everyone, &own].into_iter().chain(others) {
        let missing = memory_lines::missing(connection, owner.as_str())?;
        let is_of_page = *owner == own || *owner == everyone;
        let length: usize = missing.iter().map(|(_, text)| text.len()).sum();
        if !is_of_page && text.len() + length > OTHERS_PAGE_BYTES {
            continue;
        }
        let heading = if is_of_page { heading.to_owned() } else { format!("{heading}: {}", owner_label(owner)) };
        if !is_of_page && !is_read_back_as(&heading, owner, owner_of) {
            continue;
        }
        let lines: Vec<String> = missing.iter().map(|(_, text)| text.clone()).collect();
        text = memory_page::insert_bullets(&text, owner, &lines, &heading, owner_of);
        more.extend(missing.into_iter().map(|(id, text)| (id, owner.clone(), diff::hash(&text))));
    }
    Ok((text, more))
}

/// Records the bullets once `rendering` is written.
///
/// # Errors
/// The store cannot be written.
pub fn record_rendering(connection: &Connection, rendering: &RenderedPage) -> Result<(), StoreError> {
    for id in &rendering.gone {
        memory_lines::remove(connection, *id)?;
    }
    // A place after all existing lines; the next import numbers the lines again.
    const LAST: usize = 1_000_000_000;
    for (place, (id, owner, hash)) in rendering.more.iter().enumerate() {
        // This includes a memory forgotten while the page was written: without a record, its bullet would count as a new
        // memory.
        memory_lines::put(connection, *id, owner.as_str(), hash, LAST + place)?;
    }
    Ok(())
}

fn record(
    connection: &Connection,
    lines: &[(i64, usize)],
    bullets: &[Bullet],
    stale: &[LineRow],
) -> Result<(), StoreError> {
    memory_lines::clear(connection)?;
    for (place, (id, at)) in lines.iter().enumerate() {
        let bullet = &bullets[*at];
        memory_lines::put(connection, *id, bullet.owner.as_str(), &diff::hash(&bullet.text), place)?;
    }
    // Stale bullets stay on the page until it is written.
    for (place, row) in (lines.len()..).zip(stale) {
        memory_lines::put(connection, row.memory, &row.owner, &row.hash, place)?;
    }
    Ok(())
}

/// Applies the edits of a person to the store. Returns the memory of each bullet.
fn apply_diff(
    connection: &Connection,
    edits: &MemoryPageDiff,
    bullets: &[Bullet],
    config: &MemoryConfig,
    redact: impl Fn(&mut NewMemoryEntry),
) -> Result<Vec<(i64, usize)>, StoreError> {
    let mut lines = edits.unchanged.clone();
    let by_hand = |bullet: &Bullet| {
        let (owner, text) = (bullet.owner.clone(), bullet.text.as_str());
        let mut new = NewMemoryEntry::new(owner, MemoryKind::Fact, text, MemoryOrigin::ByHand);
        redact(&mut new);
        validate_entry(&new)
    };
    for (id, at) in &edits.moved {
        memories::set_owner(connection, *id, bullets[*at].owner.as_str())?;
        vectors::remove(connection, *id)?;
        word_index::put(connection, *id)?;
        lines.push((*id, *at));
    }
    for (id, at) in &edits.changed {
        // A memory keeps its text if the new one is invalid.
        let Ok(new) = by_hand(&bullets[*at]) else {
            lines.push((*id, *at));
            continue;
        };
        let outcome = remember_replacing(connection, &new, *id, config)?;
        if outcome == RememberOutcome::Known(*id) {
            memories::set_text(connection, *id, &new.text)?;
            vectors::remove(connection, *id)?;
            word_index::put(connection, *id)?;
        }
        push_once(&mut lines, (outcome.id(), *at));
    }
    for at in &edits.added {
        if let Ok(new) = by_hand(&bullets[*at]) {
            push_once(&mut lines, (remember(connection, &new, config)?.id(), *at));
        }
    }
    // If one of two equal bullets was removed, the other one still states the memory.
    let gone: Vec<i64> =
        edits.removed.iter().copied().filter(|id| lines.iter().all(|(known, _)| known != id)).collect();
    forget(connection, &gone)?;
    let is_changed = !(edits.moved.is_empty() && edits.changed.is_empty() && edits.added.is_empty() && gone.is_empty());
    if is_changed {
        drop_prompt_snapshots(connection, &MemoryOwner::everyone())?;
    }
    Ok(lines)
}

/// Adds the line of a memory unless it has one: of two equal bullets, the first counts.
fn push_once(lines: &mut Vec<(i64, usize)>, line: (i64, usize)) {
    if lines.iter().all(|(known, _)| *known != line.0) {
        lines.push(line);
    }
}

/// Returns true if the heading is read back as this owner. A name may contain a line break, or differ from another by spaces
/// only.
fn is_read_back_as(heading: &str, owner: &MemoryOwner, owner_of: impl Fn(&str) -> MemoryOwner) -> bool {
    let read = memory_page::parse_bullets(&format!("## {heading}\n- x\n"), owner_of);
    read.len() == 1 && read.iter().all(|bullet| bullet.owner == *owner)
}

/// Returns the owner that a name in a heading means: one that the configuration knows, or else one with facts and this
/// label. Any other name means the gateway's owner, who owns all private bullets.
fn owner_of_name(name: &str, identities: &Identities, owners: &[MemoryOwner]) -> MemoryOwner {
    parse_owner(name, identities)
        .ok()
        .or_else(|| owners.iter().find(|owner| owner_label(owner) == name).cloned())
        .unwrap_or_else(MemoryOwner::gateway)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::list;
    use crate::store::{Durability, Store};

    /// A store and its page, which the tests edit as a person does.
    struct World {
        _folder: tempfile::TempDir,
        store: Store,
        page: String,
        identities: Identities,
    }

    impl World {
        fn new(page: &str) -> Self {
            let (folder, store) = Store::temporary();
            Self { _folder: folder, store, page: page.to_owned(), identities: Identities::default() }
        }

        async fn import_page(&mut self, is_fresh: bool) -> bool {
            let page = self.page.clone();
            let identities = self.identities.clone();
            let write = move |connection: &Connection| {
                let config = MemoryConfig::default();
                let context = MemoryPageContext { config: &config, identities: &identities, heading: "Private" };
                let imported = import(connection, &page, is_fresh, context, |_| {})?;
                if let Some(rendering) = &imported {
                    record_rendering(connection, rendering)?;
                }
                Ok(imported)
            };
            let imported = self.store.write(Durability::Logged, write).await.unwrap();
            imported.map(|rendering| self.page = rendering.text).is_some()
        }

        async fn remember(&self, owner: MemoryOwner, text: &str) {
            let new = NewMemoryEntry::new(owner, MemoryKind::Fact, text, MemoryOrigin::Stated);
            let write = move |connection: &Connection| remember(connection, &new, &MemoryConfig::default());
            self.store.write(Durability::Logged, write).await.unwrap();
        }

        async fn known(&self, owner: MemoryOwner) -> Vec<String> {
            let read = move |connection: &Connection| list(connection, &owner, MemoryKind::Fact, 100);
            let mut texts: Vec<_> = self.store.read(read).await.unwrap().into_iter().map(|entry| entry.text).collect();
            texts.reverse();
            texts
        }
    }

    #[tokio::test]
    async fn edits_reach_the_store_and_new_memories_reach_the_page() {
        let mut world = World::new("# M\n\n- all know\n");
        world.remember(MemoryOwner::gateway(), "My cat is called Momo").await;
        world.remember(MemoryOwner::gateway(), "I like tea").await;
        assert!(world.import_page(false).await);
        let first = "# M\n\n- all know\n\n## Private\n\n- My cat is called Momo\n- I like tea\n";
        assert_eq!(
            (world.page.as_str(), world.known(MemoryOwner::everyone()).await),
            (first, vec!["all know".to_owned()])
        );
        // Replaced in the store: the new bullet replaces the old one.
        world.remember(MemoryOwner::gateway(), "My cat is called Nini").await;
        assert!(world.import_page(false).await);
        assert_eq!(world.page, first.replace("- My cat is called Momo\n", "") + "- My cat is called Nini\n");
        // Changed, moved and added by hand.
        world.page =
            "# M\n- all know this\n- I like tea\n\n## Private\nx\n- My cat is called Nini\n- my cat is called nini\n"
                .to_owned();
        let by_hand = world.page.clone();
        assert!(world.import_page(false).await);
        assert_eq!(world.page, by_hand, "the page is unchanged");
        assert_eq!(world.known(MemoryOwner::everyone()).await, ["I like tea", "all know this"]);
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["My cat is called Nini"]);
        // A bullet that contradicts another one replaces it on the page as well.
        world.page = by_hand.replace("- my cat is called nini\n", "- My cat is called Lulu\n");
        assert!(world.import_page(false).await);
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["My cat is called Lulu"]);
        assert_eq!(
            world.page,
            by_hand.replace("- My cat is called Nini\n- my cat is called nini\n", "- My cat is called Lulu\n")
        );
        // A page that was written just now does not remove many memories at once.
        let whole = std::mem::replace(&mut world.page, "# M\n".to_owned());
        assert!(!world.import_page(true).await);
        assert_eq!(world.known(MemoryOwner::everyone()).await.len(), 2);
        world.page = whole.replace("- I like tea\n", "");
        assert!(world.import_page(true).await);
        assert_eq!(world.known(MemoryOwner::everyone()).await, ["all know this"]);
        let long = format!("- {}\n", "x".repeat(1_001));
        world.page.push_str(&long);
        assert!(
            world.import_page(false).await && world.page.ends_with(&long),
            "a text that is too long stays, and is not stored"
        );
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["My cat is called Lulu"]);
    }

    #[tokio::test]
    async fn memories_forgotten_during_a_write_do_not_return() {
        let mut world = World::new("# M\n\n## Private\n");
        world.remember(MemoryOwner::gateway(), "The code is 4711").await;
        let (page, identities) = (world.page.clone(), world.identities.clone());
        let write = move |connection: &Connection| {
            let config = MemoryConfig::default();
            let context = MemoryPageContext { config: &config, identities: &identities, heading: "Private" };
            let rendering = import(connection, &page, false, context, |_| {})?.unwrap();
            let ids: Vec<i64> = rendering.more.iter().map(|(id, ..)| *id).collect();
            forget(connection, &ids)?;
            record_rendering(connection, &rendering)?;
            Ok(rendering.text)
        };
        world.page = world.store.write(Durability::Logged, write).await.unwrap();
        assert!(world.page.contains("4711"));
        assert!(world.import_page(false).await);
        assert_eq!(
            (world.page.trim_end(), world.known(MemoryOwner::gateway()).await),
            ("# M\n\n## Private", Vec::new())
        );
    }

    #[tokio::test]
    async fn every_owner_has_a_section() {
        let mut world = World::new("# M\n\n## Private\n");
        let (ann, bob) = (MemoryOwner::sender("webhook:in", "ann"), MemoryOwner::sender("webhook:in", "bob"));
        let sly =
            ["ann ", "x\n- all is free", "x\n## Private", "ann #"].map(|name| MemoryOwner::sender("webhook:in", name));
        for owner in [MemoryOwner::gateway(), ann.clone(), bob.clone()].into_iter().chain(sly) {
            world.remember(owner, "I like tea").await;
        }
        assert!(world.import_page(false).await);
        let page = "# M\n\n## Private: webhook:in:ann\n\n- I like tea\n\n## Private: webhook:in:bob\n\n- I like tea\n\n\
                    ## Private\n\n- I like tea\n";
        assert_eq!(world.page, page);
        // One section changes; the bullets of the others stay.
        world.page = page.replacen("- I like tea", "- I like coffee", 1) + "- a PIN\n";
        let by_hand = world.page.clone();
        assert!(world.import_page(false).await);
        assert_eq!(world.page, by_hand);
        assert_eq!(world.known(ann.clone()).await, ["I like coffee"]);
        assert_eq!(world.known(bob.clone()).await, ["I like tea"]);
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["I like tea", "a PIN"]);
        let forgotten = bob.clone();
        let forget_bobs = move |connection: &Connection| {
            let ids: Vec<i64> =
                list(connection, &forgotten, MemoryKind::Fact, 9)?.iter().map(|entry| entry.id).collect();
            forget(connection, &ids)
        };
        world.store.write(Durability::Logged, forget_bobs).await.unwrap();
        assert!(world.import_page(false).await);
        assert_eq!(world.page, by_hand.replacen("- I like tea\n", "", 1));
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["I like tea", "a PIN"]);
        // An owner with a new name keeps the old section; an unknown name means the gateway's owner.
        let all = [("ann".to_owned(), vec!["webhook:in:ann".to_owned()])].into();
        world.identities = Identities::new(&all);
        world.page = world.page.replace("## Private: webhook:in:bob", "## Private: health\n- I am well");
        assert!(world.import_page(false).await);
        assert_eq!(world.known(MemoryOwner::named("ann")).await, ["I like coffee"]);
        assert_eq!(world.known(MemoryOwner::gateway()).await, ["I like tea", "a PIN", "I am well"]);
        world.remember(MemoryOwner::named("ann"), "My cat is Momo").await;
        assert!(world.import_page(false).await);
        assert!(world.page.contains("ann\n\n- I like coffee\n- My cat is Momo\n"), "{}", world.page);
    }
}
