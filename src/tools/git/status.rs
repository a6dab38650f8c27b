//! Parses `git status --porcelain=v2 -z` (git-status(1)).

/// The state of a work tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WorkTreeStatus {
    /// The current branch; `None` if HEAD is detached.
    pub branch: Option<String>,
    /// The commit of HEAD; `None` before the first commit.
    pub commit: Option<String>,
    pub upstream: Option<String>,
    /// The number of commits that the upstream branch lacks, and the number that only it has.
    pub ahead_behind: Option<(u64, u64)>,
    pub entries: Vec<StatusEntry>,
}

/// A file that differs from HEAD or the index.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatusEntry {
    /// Two letters as in `git status --short`: for the index, and for the work tree.
    pub code: String,
    /// The path as it is shown: bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The path as git knows it.
    pub raw_path: Vec<u8>,
    /// The former path of a renamed file.
    pub origin: Option<String>,
}

impl StatusEntry {
    pub(super) fn new(code: String, path: &[u8], origin: Option<&[u8]>) -> Self {
        let shown = |path| String::from_utf8_lossy(path).into_owned();
        Self { code, path: shown(path), raw_path: path.to_owned(), origin: origin.map(shown) }
    }

    /// Returns true if the file is in `folder`, or was there before it was renamed.
    pub(super) fn is_in(&self, folder: &str) -> bool {
        is_below(&self.path, folder) || self.origin.as_deref().is_some_and(|origin| is_below(origin, folder))
    }

    pub(super) fn is_untracked(&self) -> bool {
        self.code == "??"
    }

    pub(super) fn is_conflict(&self) -> bool {
        self.code.contains('U') || matches!(self.code.as_str(), "AA" | "DD")
    }

    pub(super) fn is_staged(&self) -> bool {
        !self.is_untracked() && !self.is_conflict() && !self.code.starts_with(' ')
    }
}

impl WorkTreeStatus {
    pub(super) fn parse(output: &[u8]) -> Self {
        let mut status = Self::default();
        let mut records = output.split(|byte| *byte == 0);
        while let Some(record) = records.next() {
            let (kind, rest) = (record.first(), record.get(2..).unwrap_or_default());
            match kind {
                Some(b'#') => status.read_header(&String::from_utf8_lossy(rest)),
                // The number of fields before the path: see git-status(1).
                Some(b'1') => status.add(rest, 7, None),
                Some(b'2') => status.add(rest, 8, records.next()),
                Some(b'u') => status.add(rest, 9, None),
                Some(b'?') => status.entries.push(StatusEntry::new("??".to_owned(), rest, None)),
                _ => {}
            }
        }
        status
    }

    fn read_header(&mut self, header: &str) {
        let Some((name, value)) = header.split_once(' ') else { return };
        match name {
            "branch.oid" if value != "(initial)" => self.commit = Some(value.to_owned()),
            "branch.head" if value != "(detached)" => self.branch = Some(value.to_owned()),
            "branch.upstream" => self.upstream = Some(value.to_owned()),
            "branch.ab" => {
                let numbers = value.split_once(' ');
                self.ahead_behind = numbers.and_then(|(ahead, behind)| {
                    Some((ahead.trim_start_matches('+').parse().ok()?, behind.trim_start_matches('-').parse().ok()?))
                });
            }
            _ => {}
        }
    }

    fn add(&mut self, rest: &[u8], fields: usize, origin: Option<&[u8]>) {
        let mut parts = rest.splitn(fields + 1, |byte| *byte == b' ');
        let (Some(code), Some(path)) = (parts.next(), parts.nth(fields - 1)) else { return };
        let code = String::from_utf8_lossy(code).replace('.', " ");
        self.entries.push(StatusEntry::new(code, path, origin));
    }

    /// Describes the branch in one line.
    pub(super) fn branch_line(&self) -> String {
        let mut line = match (&self.branch, &self.commit) {
            (Some(branch), Some(_)) => format!("On branch {branch}"),
            (Some(branch), None) => format!("On branch {branch}, no commits yet"),
            (None, Some(commit)) => format!("HEAD detached at {}", commit.get(..10).unwrap_or(commit)),
            (None, None) => "No branch".to_owned(),
        };
        if let Some(upstream) = &self.upstream {
            line += &match self.ahead_behind {
                Some((0, 0)) => format!(", up to date with {upstream}"),
                Some((ahead, 0)) => format!(", ahead {ahead} of {upstream}"),
                Some((0, behind)) => format!(", behind {behind} of {upstream}"),
                Some((ahead, behind)) => format!(", ahead {ahead}, behind {behind} of {upstream}"),
                None => format!(", upstream {upstream} is gone"),
            };
        }
        line
    }
}

/// Returns true if `path` is the file or folder `above`, or lies in it.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    above == "." || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_record_is_parsed() {
        let text = "# branch.oid 1234567890abcdef\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +1 -2\0\
                    1 .M N... 100644 100644 100644 a a with space.txt\0\
                    2 R. N... 100644 100644 100644 a a R100 new name\0old name\0\
                    u UU N... 100644 100644 100644 100644 a b c both\n lines\0? new/\0";
        let status = WorkTreeStatus::parse(text.as_bytes());
        assert_eq!(status.branch_line(), "On branch main, ahead 1, behind 2 of origin/main");
        let entries: Vec<_> = status.entries.iter().map(|e| (e.code.as_str(), e.path.as_str())).collect();
        assert_eq!(entries, [(" M", "with space.txt"), ("R ", "new name"), ("UU", "both\n lines"), ("??", "new/")]);
        assert_eq!(status.entries[1].origin.as_deref(), Some("old name"));
        let kinds = status.entries.iter().map(|e| (e.is_staged(), e.is_conflict(), e.is_untracked()));
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(kinds, [(false, false, false), (true, false, false), (false, true, false), (false, false, true)]);
    }

    #[test]
    fn the_branch_is_described() {
        for (text, expected) in [
            ("# branch.oid (initial)\0# branch.head main\0", "On branch main, no commits yet"),
            ("# branch.oid 1234567890abcdef\0# branch.head (detached)\0", "HEAD detached at 1234567890"),
            ("# branch.oid 1\0# branch.head a\0# branch.upstream o/a\0", "On branch a, upstream o/a is gone"),
            (
                "# branch.oid 1\0# branch.head a\0# branch.upstream o/a\0# branch.ab +0 -0\0",
                "On branch a, up to date with o/a",
            ),
            ("garbage\0\0# x", "No branch"),
        ] {
            assert_eq!(WorkTreeStatus::parse(text.as_bytes()).branch_line(), expected);
        }
    }
}
