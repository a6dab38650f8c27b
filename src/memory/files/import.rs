//! Between MEMORY.md and the store: what a person did there is done in the store, and what is new in the store is to stand there.

use serde_json::json;

use super::apart::{self, Done, Stood};
use super::page::{self, Bullet};
use crate::memory::book::{remember, remember_instead};
use crate::memory::forgetting::{drop_prompts, forget};
use crate::memory::{Kind, MemoryConfig, NewEntry, Origin, Owner, Remembered, fit, vectors, words};
use crate::store::memory_lines::{self, LineRow};
use crate::store::{Connection, StoreError, memories, remembering};

/// What a page was compared for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Much of it is missing, and it was written this moment: it is looked at again.
    NotYet,
    Done(Rendering),
}

/// The page as it is to be, and what is noted once it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    pub text: String,
    /// Memories that stand there then: id, private, hash.
    pub more: Vec<(i64, bool, String)>,
    /// Memories that stand there no more.
    pub gone: Vec<i64>,
}

/// So many bullets that go at once are a reason to look again, if they are also half of all.
const MANY: usize = 2;

/// Brings what was done to `page` into the store, in the caller's write. `strike` takes secrets out.
///
/// # Errors
/// The store cannot be written.
pub fn import(
    connection: &Connection,
    page: &str,
    is_fresh: bool,
    heading: &str,
    config: &MemoryConfig,
    strike: impl Fn(&mut NewEntry),
) -> Result<Imported, StoreError> {
    let (rows, stale): (Vec<LineRow>, Vec<LineRow>) =
        memory_lines::all(connection)?.into_iter().partition(|row| row.text.is_some());
    let mut bullets = page::bullets(page);
    let mut removed = Vec::new();
    for row in &stale {
        let is_it = |bullet: &Bullet| bullet.is_private == row.is_private && apart::hash(&bullet.text) == row.hash;
        if let Some(at) = bullets.iter().position(is_it) {
            removed.push(bullets.remove(at).range);
        }
    }
    let stood: Vec<Stood> = rows
        .iter()
        .map(|row| Stood {
            id: row.memory,
            is_private: row.is_private,
            hash: row.hash.clone(),
            text: row.text.clone().unwrap_or_default(),
        })
        .collect();
    let done = apart::done(&stood, &bullets);
    if is_fresh && done.removed.len() >= MANY && done.removed.len() * 2 > stood.len() {
        return Ok(Imported::NotYet);
    }
    let mut lines = carry_out(connection, &done, &bullets, config, strike)?;
    lines.sort_by_key(|(_, at)| *at);
    if stood.iter().map(|line| line.id).ne(lines.iter().map(|(id, _)| *id))
        || !done.changed.is_empty()
        || !done.moved.is_empty()
    {
        // What was written by hand may have taken the place of another line.
        let mut standing = Vec::with_capacity(lines.len());
        for (id, at) in lines {
            let is_known = memories::get(connection, id)?.is_some_and(|row| row.replaced_by.is_none());
            if is_known { standing.push((id, at)) } else { removed.push(bullets[at].range.clone()) }
        }
        note(connection, &standing, &bullets, &stale)?;
    }
    let missing = |owner: Owner| memory_lines::missing(connection, owner.as_str());
    let (public, private) = (missing(Owner::everyone())?, missing(Owner::gateway())?);
    let texts = |facts: &[(i64, String)]| facts.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
    let text = page::without(page, &removed);
    let text = page::with(&text, false, &texts(&public), heading);
    let text = page::with(&text, true, &texts(&private), heading);
    let more = |facts: Vec<(i64, String)>, is_private| {
        facts.into_iter().map(move |(id, text)| (id, is_private, apart::hash(&text)))
    };
    let more = more(public, false).chain(more(private, true)).collect();
    Ok(Imported::Done(Rendering { text, more, gone: stale.into_iter().map(|row| row.memory).collect() }))
}

/// Notes what stands there once `rendering` is written.
///
/// # Errors
/// The store cannot be written.
pub fn settle(connection: &Connection, rendering: &Rendering) -> Result<(), StoreError> {
    for id in &rendering.gone {
        memory_lines::remove(connection, *id)?;
    }
    // Behind all others of its kind; the next look counts anew.
    const LAST: usize = 1_000_000_000;
    for (place, (id, is_private, hash)) in rendering.more.iter().enumerate() {
        if memories::get(connection, *id)?.is_some() {
            memory_lines::put(connection, *id, *is_private, hash, LAST + place)?;
        }
    }
    Ok(())
}

fn note(
    connection: &Connection,
    lines: &[(i64, usize)],
    bullets: &[Bullet],
    stale: &[LineRow],
) -> Result<(), StoreError> {
    memory_lines::clear(connection)?;
    for (place, (id, at)) in lines.iter().enumerate() {
        let bullet = &bullets[*at];
        memory_lines::put(connection, *id, bullet.is_private, &apart::hash(&bullet.text), place)?;
    }
    // They stand there until the page is written.
    for (place, row) in (lines.len()..).zip(stale) {
        memory_lines::put(connection, row.memory, row.is_private, &row.hash, place)?;
    }
    Ok(())
}

/// Does in the store what a person did on the page; answers which memory each bullet tells.
fn carry_out(
    connection: &Connection,
    done: &Done,
    bullets: &[Bullet],
    config: &MemoryConfig,
    strike: impl Fn(&mut NewEntry),
) -> Result<Vec<(i64, usize)>, StoreError> {
    let mut lines = done.kept.clone();
    let by_hand = |bullet: &Bullet| {
        let mut new = NewEntry {
            owner: owner_of(bullet),
            kind: Kind::Fact,
            name: String::new(),
            text: bullet.text.clone(),
            detail: json!({}),
            origin: Origin::ByHand,
            source: None,
            confidence: 1.0,
        };
        strike(&mut new);
        fit(&new)
    };
    for (id, at) in &done.moved {
        remembering::give(connection, *id, owner_of(&bullets[*at]).as_str())?;
        vectors::remove(connection, *id)?;
        words::put(connection, *id, &bullets[*at].text)?;
        lines.push((*id, *at));
    }
    for (id, at) in &done.changed {
        // One that cannot be kept as it is stays known as it was.
        let Ok(new) = by_hand(&bullets[*at]) else {
            lines.push((*id, *at));
            continue;
        };
        let told = remember_instead(connection, &new, *id, config)?;
        if told == Remembered::Known(*id) {
            remembering::retell(connection, *id, &new.text)?;
            vectors::remove(connection, *id)?;
            words::put(connection, *id, &new.text)?;
        }
        push_once(&mut lines, (told.id(), *at));
    }
    for at in &done.added {
        if let Ok(new) = by_hand(&bullets[*at]) {
            push_once(&mut lines, (remember(connection, &new, config)?.id(), *at));
        }
    }
    // A bullet that says the same as another may have gone: the other one still says it.
    let gone: Vec<i64> = done.removed.iter().copied().filter(|id| lines.iter().all(|(known, _)| known != id)).collect();
    forget(connection, &gone)?;
    let is_changed = !(done.moved.is_empty() && done.changed.is_empty() && done.added.is_empty() && gone.is_empty());
    if is_changed {
        drop_prompts(connection, &Owner::everyone())?;
    }
    Ok(lines)
}

/// Two bullets may say the same; the first of them is the line of the memory.
fn push_once(lines: &mut Vec<(i64, usize)>, line: (i64, usize)) {
    if lines.iter().all(|(known, _)| *known != line.0) {
        lines.push(line);
    }
}

fn owner_of(bullet: &Bullet) -> Owner {
    if bullet.is_private { Owner::gateway() } else { Owner::everyone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::list;
    use crate::store::{Commit, Store};

    /// A store and its page; each step is what a person makes of the page.
    struct World {
        _folder: tempfile::TempDir,
        store: Store,
        page: String,
    }

    impl World {
        async fn look(&mut self, is_fresh: bool) -> bool {
            let page = self.page.clone();
            let config = MemoryConfig::default();
            let write = move |connection: &Connection| {
                let imported = import(connection, &page, is_fresh, "Private", &config, |_| {})?;
                if let Imported::Done(rendering) = &imported {
                    settle(connection, rendering)?;
                }
                Ok(imported)
            };
            match self.store.write(Commit::Logged, write).await.unwrap() {
                Imported::NotYet => false,
                Imported::Done(rendering) => {
                    self.page = rendering.text;
                    true
                }
            }
        }

        async fn tell(&self, text: &str) {
            let new = NewEntry {
                owner: Owner::gateway(),
                kind: Kind::Fact,
                name: String::new(),
                text: text.to_owned(),
                detail: json!({}),
                origin: Origin::Told,
                source: None,
                confidence: 0.8,
            };
            let write = move |connection: &Connection| remember(connection, &new, &MemoryConfig::default());
            self.store.write(Commit::Logged, write).await.unwrap();
        }

        async fn known(&self, owner: Owner) -> Vec<String> {
            let read = move |connection: &Connection| list(connection, &owner, Kind::Fact, 100);
            let mut texts: Vec<_> = self.store.read(read).await.unwrap().into_iter().map(|entry| entry.text).collect();
            texts.reverse();
            texts
        }
    }

    #[tokio::test]
    async fn what_a_person_does_is_done_and_what_is_new_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let mut world = World { _folder: folder, store, page: "# M\n\n- all know\n".to_owned() };
        world.tell("My cat is called Momo").await;
        world.tell("I like tea").await;
        assert!(world.look(false).await);
        let first = "# M\n\n- all know\n\n## Private\n\n- My cat is called Momo\n- I like tea\n";
        assert_eq!((world.page.as_str(), world.known(Owner::everyone()).await), (first, vec!["all know".to_owned()]));
        // Replaced in the store: the bullet goes, the new one comes.
        world.tell("My cat is called Nini").await;
        assert!(world.look(false).await);
        assert_eq!(world.page, first.replace("- My cat is called Momo\n", "") + "- My cat is called Nini\n");
        // Changed, moved and added by hand.
        world.page =
            "# M\n- all know this\n- I like tea\n\n## Private\nx\n- My cat is called Nini\n- my cat is called nini\n"
                .to_owned();
        let by_hand = world.page.clone();
        assert!(world.look(false).await);
        assert_eq!(world.page, by_hand, "nothing is to be written");
        assert_eq!(world.known(Owner::everyone()).await, ["I like tea", "all know this"]);
        assert_eq!(world.known(Owner::gateway()).await, ["My cat is called Nini"]);
        // What contradicts another bullet takes its place on the page, too.
        world.page = by_hand.replace("- my cat is called nini\n", "- My cat is called Lulu\n");
        assert!(world.look(false).await);
        assert_eq!(world.known(Owner::gateway()).await, ["My cat is called Lulu"]);
        assert_eq!(
            world.page,
            by_hand.replace("- My cat is called Nini\n- my cat is called nini\n", "- My cat is called Lulu\n")
        );
        // A page that is just being written is not believed to have lost much.
        let whole = std::mem::replace(&mut world.page, "# M\n".to_owned());
        assert!(!world.look(true).await);
        assert_eq!(world.known(Owner::everyone()).await.len(), 2);
        world.page = whole.replace("- I like tea\n", "");
        assert!(world.look(true).await);
        assert_eq!(world.known(Owner::everyone()).await, ["all know this"]);
        let long = format!("- {}\n", "x".repeat(1_001));
        world.page.push_str(&long);
        assert!(world.look(false).await && world.page.ends_with(&long), "what is too long stays and is no fact");
        assert_eq!(world.known(Owner::gateway()).await, ["My cat is called Lulu"]);
    }
}
