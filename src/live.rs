//! Settings that a reload replaces while other tasks use them.

use std::sync::Arc;

use parking_lot::RwLock;

/// A snapshot that is replaced as a whole. A caller keeps the snapshot that it took for as long as it needs it: a turn ends
/// with the settings with which it began.
///
/// A gateway has one snapshot of all settings, and a reload stores it once. Modules that do not know its type hold a
/// [`LivePart`] of it, so all these modules see the new settings at the same moment. A caller that needs several related parts
/// takes them with one [`Self::get`], or as one part that holds all of them. An `RwLock` is fast enough, because a turn reads
/// the settings only a few times.
#[derive(Debug, Default)]
pub struct Live<T>(RwLock<Arc<T>>);

impl<T> Live<T> {
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(RwLock::new(value.into()))
    }

    /// Returns the current value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Replaces the value for later calls of [`Self::get`].
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write() = value.into();
    }
}

impl<T: Send + Sync + 'static> Live<T> {
    /// Returns a part that follows each replacement of the whole.
    pub fn part<P>(self: &Arc<Self>, select: impl Fn(&Arc<T>) -> &Arc<P> + Send + Sync + 'static) -> LivePart<P> {
        let whole = self.clone();
        LivePart(Arc::new(move || select(&whole.get()).clone()))
    }
}

/// A part of the current snapshot of a [`Live`].
pub struct LivePart<P>(Arc<dyn Fn() -> Arc<P> + Send + Sync>);

impl<P: Send + Sync + 'static> LivePart<P> {
    /// Creates a part that never changes.
    pub fn fixed(value: impl Into<Arc<P>>) -> Self {
        let value = value.into();
        Self(Arc::new(move || value.clone()))
    }
}

impl<P> LivePart<P> {
    /// Returns the current value.
    pub fn get(&self) -> Arc<P> {
        (self.0)()
    }
}

impl<P> Clone for LivePart<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_value_in_use_does_not_change() {
        let live = Live::new(1);
        let taken = live.get();
        live.set(2);
        assert_eq!((*taken, *live.get()), (1, 2));
    }

    #[test]
    fn all_parts_follow_one_replacement() {
        let live = Arc::new(Live::new((Arc::new(1), Arc::new("one"))));
        let (number, word) = (live.part(|all| &all.0), live.part(|all| &all.1));
        live.set((Arc::new(2), Arc::new("two")));
        assert_eq!((*number.get(), *word.get()), (2, "two"));
    }

    #[test]
    fn a_snapshot_is_never_half_replaced() {
        let live = Arc::new(Live::new((Arc::new(0), Arc::new(0))));
        let whole = live.part(|all| all);
        let reader = thread::spawn(move || {
            loop {
                let all = whole.get();
                assert_eq!(all.0, all.1);
                if *all.0 == 1_000 {
                    return;
                }
            }
        });
        for number in 1..=1_000 {
            live.set((Arc::new(number), Arc::new(number)));
        }
        reader.join().unwrap();
    }
}
