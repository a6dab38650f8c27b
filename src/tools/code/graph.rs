//! The graph of source files: an edge leads from a file that uses a name to the file that defines it. A personalised PageRank of
//! the graph shows which definitions matter.
//!
//! The `page_rank` of petgraph supports neither edge weights nor personalisation.

use std::collections::{HashMap, HashSet};

use super::language::CodeLanguage;
use super::tags::{FileTags, SymbolKind};

/// The damping factor of PageRank, and the number of rounds.
const DAMPING: f64 = 0.85;
const ROUNDS: usize = 20;
/// The weight of a file under discussion, and of a file that defines a mentioned name. Other files have weight 1.
const DISCUSSED: f64 = 50.0;
const MENTIONED: f64 = 10.0;
/// A name is ignored if more than `TOO_COMMON` files define it. It has little weight if more than `COMMON` files define it.
const TOO_COMMON: usize = 50;
const COMMON: usize = 5;
/// The factor for the weight of vague names: common, short or private ones.
const VAGUE: f64 = 0.1;
const SHORT: usize = 3;
/// Names that usually refer to the language or its library, even if a file defines the same name.
const OF_LANGUAGES: &[&str] = &[
    "Some", "None", "Ok", "Err", "Option", "Result", "Default", "Self", "Vec", "Box", "String", "Path", "Duration",
    "Error", "Value", "Object", "Array", "List", "Map", "Promise", "Exception",
];
/// The part of a file's rank that its definitions share, whether they are used or not.
const OWN_SHARE: f64 = 0.05;

/// The edges by their source node: each has its target node and its weight.
type Edges = Vec<Vec<(usize, f64)>>;

/// A file of the graph.
pub(super) struct GraphFile<'a> {
    pub tags: &'a FileTags,
    pub language: CodeLanguage,
    pub is_discussed: bool,
    /// True for test code: only other tests use its definitions.
    pub is_test: bool,
}

/// A definition with its rank. It is identified by the index of the file, and of the definition in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RankedDefinition {
    pub file: usize,
    pub definition: usize,
    pub rank: f64,
}

/// Ranks the definitions of all files, the most important one first. `idents` are mentioned names.
pub(super) fn rank_definitions(files: &[GraphFile<'_>], idents: &HashSet<&str>) -> Vec<RankedDefinition> {
    let definers = definers(files);
    let mut edges: Edges = vec![Vec::new(); files.len()];
    for (from, edge) in edges.iter_mut().enumerate() {
        let mut weights: HashMap<usize, f64> = HashMap::new();
        for (_, to, weight) in uses(from, &files[from], &definers) {
            *weights.entry(to).or_default() += weight;
        }
        edge.extend(weights);
        // The sum of floats depends on their order, so the order is fixed.
        edge.sort_unstable_by_key(|(to, _)| *to);
    }
    let mut start: Vec<f64> = files.iter().map(|file| if file.is_discussed { DISCUSSED } else { 1.0 }).collect();
    let mentioned = definers.iter().filter(|((name, _), _)| idents.contains(name));
    for definer in mentioned.flat_map(|(_, list)| list) {
        start[definer.file] *= MENTIONED;
    }
    let ranks = page_rank(&edges, &start);
    let mut scores: HashMap<(usize, &str), f64> = HashMap::new();
    for (from, edges) in edges.iter().enumerate() {
        let total: f64 = edges.iter().map(|(_, weight)| weight).sum();
        for (name, to, weight) in uses(from, &files[from], &definers) {
            *scores.entry((to, name)).or_default() += ranks[from] * weight / total;
        }
    }
    let mut ranked = Vec::new();
    for (file, graph_file) in files.iter().enumerate() {
        let definitions = &graph_file.tags.definitions;
        let mut same: HashMap<&str, f64> = HashMap::new();
        for definition in definitions {
            *same.entry(&definition.name).or_default() += 1.0;
        }
        for (index, definition) in definitions.iter().enumerate().filter(|(_, found)| found.kind != SymbolKind::Impl) {
            let name = definition.name.as_str();
            let used = scores.get(&(file, name)).copied().unwrap_or(0.0) / same.get(name).copied().unwrap_or(1.0);
            let rank = match idents.contains(name) {
                true => (used + ranks[file]) * MENTIONED,
                false => used + ranks[file] * OWN_SHARE / definitions.len() as f64,
            };
            ranked.push(RankedDefinition { file, definition: index, rank });
        }
    }
    ranked.sort_by(|one, other| {
        other.rank.total_cmp(&one.rank).then(one.file.cmp(&other.file)).then(one.definition.cmp(&other.definition))
    });
    ranked
}

/// The files that define names, by name and family of languages. A use never refers to a name of another family.
type Definers<'a> = HashMap<(&'a str, CodeLanguage), Vec<Definer>>;

/// A file that defines a name.
struct Definer {
    file: usize,
    /// The kinds of definitions of that name in the file.
    has_type: bool,
    has_member: bool,
    has_other: bool,
    is_test: bool,
}

/// Returns the files that define each name. Names that are too common to be informative are left out.
fn definers<'a>(files: &[GraphFile<'a>]) -> Definers<'a> {
    let mut definers = Definers::new();
    for (file, graph_file) in files.iter().enumerate() {
        let named = graph_file.tags.definitions.iter().filter(|definition| definition.kind != SymbolKind::Impl);
        for definition in named {
            let list = definers.entry((&definition.name, graph_file.language.family())).or_default();
            if list.last().is_none_or(|last| last.file != file) {
                let is_test = graph_file.is_test;
                list.push(Definer { file, has_type: false, has_member: false, has_other: false, is_test });
            }
            if let Some(last) = list.last_mut() {
                let (is_type, is_member) = (definition.kind.is_type(), definition.kind.is_member());
                last.has_type |= is_type;
                last.has_member |= is_member;
                last.has_other |= !is_type && !is_member;
            }
        }
    }
    definers.retain(|(name, _), list| list.len() <= TOO_COMMON && !OF_LANGUAGES.contains(name));
    definers
}

/// Returns the uses of names in the file with this index: the name, the file that defines it, and the weight.
fn uses<'a>(
    index: usize,
    user: &'a GraphFile<'a>,
    definers: &'a Definers<'_>,
) -> impl Iterator<Item = (&'a str, usize, f64)> {
    let (tags, family, is_test) = (user.tags, user.language.family(), user.is_test);
    let defined = move |name: &'a str| definers.get(&(name, family)).map_or(&[][..], Vec::as_slice);
    let types = tags.references.iter().flat_map(move |(name, _)| defined(name)).filter(|definer| definer.has_type);
    let with_used_types: HashSet<usize> = types.map(|definer| definer.file).collect();
    tags.references.iter().flat_map(move |(written, count)| {
        let name = written.trim_start_matches('.');
        let list = defined(name);
        // If the file itself defines the name, it most likely means its own definition.
        let says_something = !list.iter().any(|definer| definer.file == index);
        let weight = f64::from(count).sqrt() * weight_of(name, list.len());
        let is_plain = !name.chars().skip(1).any(char::is_uppercase);
        let is_meant = |definer: &Definer| {
            let is_other = name == written && (definer.has_type || definer.has_other);
            // A member with a plain name may belong to any type, such as a library's type. It counts only if the file also uses a
            // type of the defining file.
            is_other || (definer.has_member && (!is_plain || with_used_types.contains(&definer.file)))
        };
        let may_use = |definer: &&Definer| is_test || !definer.is_test;
        let meant: Vec<_> = list.iter().filter(may_use).filter(|definer| says_something && is_meant(definer)).collect();
        meant.into_iter().map(move |to| (name, to.file, weight))
    })
}

/// Returns the weight of a use of a name, for each file that defines the name.
fn weight_of(name: &str, definers: usize) -> f64 {
    let is_private = name.starts_with(['_', '#']);
    let is_short = name.chars().count() <= SHORT && name.is_ascii();
    // A plain word mostly refers to something else, such as `join` to a method of a library's type, or `MAX` to a constant of a
    // number.
    let is_one_case = !name.contains(char::is_uppercase) || !name.contains(char::is_lowercase);
    let is_plain = !name.trim_matches('_').contains('_') && is_one_case;
    let vague = [is_private, is_short, is_plain, definers > COMMON].into_iter().filter(|is_vague| *is_vague).count();
    VAGUE.powi(i32::try_from(vague).unwrap_or(0)) / definers.max(1) as f64
}

/// Returns the rank of each node; the sum is 1. `start` is the distribution of the nodes where a reader starts, and starts again.
fn page_rank(edges: &Edges, start: &[f64]) -> Vec<f64> {
    let sum: f64 = start.iter().sum();
    let start: Vec<f64> = start.iter().map(|weight| weight / sum).collect();
    let totals: Vec<f64> = edges.iter().map(|edges| edges.iter().map(|(_, weight)| weight).sum()).collect();
    let mut ranks = start.clone();
    for _ in 0..ROUNDS {
        // From a node without edges, the reader starts again.
        let lost: f64 = ranks.iter().zip(&totals).filter(|(_, total)| **total <= 0.0).map(|(rank, _)| rank).sum();
        let mut next: Vec<f64> = start.iter().map(|weight| weight * (1.0 - DAMPING + DAMPING * lost)).collect();
        for ((from, rank), total) in edges.iter().zip(&ranks).zip(&totals).filter(|(_, total)| **total > 0.0) {
            for (to, weight) in from {
                next[*to] += DAMPING * rank * weight / total;
            }
        }
        ranks = next;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tags::{Definition, NameCounts};
    use super::*;

    fn tags(defined: &[&str], used: &[(&str, u32)]) -> FileTags {
        let definition = |(index, name): (usize, &&str)| {
            let line = u32::try_from(index).unwrap() + 1;
            Definition { kind: SymbolKind::Function, name: (*name).to_owned(), line, start: line, end: line }
        };
        FileTags {
            definitions: defined.iter().enumerate().map(definition).collect(),
            references: NameCounts::from(used.iter().copied().collect::<BTreeMap<_, _>>()),
            is_too_deep: false,
        }
    }

    /// Returns the names in the order of their ranks.
    fn ranked(files: &[FileTags], discussed: &[usize], idents: &[&str]) -> Vec<String> {
        let graph: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(index, tags)| GraphFile {
                tags,
                language: CodeLanguage::Rust,
                is_discussed: discussed.contains(&index),
                is_test: false,
            })
            .collect();
        let ranked = rank_definitions(&graph, &idents.iter().copied().collect());
        ranked.iter().map(|found| files[found.file].definitions[found.definition].name.clone()).collect()
    }

    #[test]
    fn what_others_use_comes_first() {
        let files = [
            tags(&["helper", "unused"], &[]),
            tags(&["run_all"], &[("helper", 4), ("_hidden", 4)]),
            tags(&["_hidden"], &[("helper", 1)]),
            tags(&["lonely"], &[("log", 9)]),
            tags(&["log"], &[]),
        ];
        let plain = ranked(&files, &[], &[]);
        assert_eq!(plain[0], "helper");
        assert!(
            plain.iter().position(|name| name == "log") < plain.iter().position(|name| name == "_hidden"),
            "{plain:?}"
        );
        assert_eq!(ranked(&files, &[3], &[])[0], "log", "what a file under discussion uses");
        let discussed = ranked(&files, &[3], &[]);
        assert!(discussed.iter().position(|name| name == "lonely") < Some(3), "its own definitions: {discussed:?}");
        assert_eq!(ranked(&files, &[], &["unused"])[0], "unused", "a mentioned name");
    }

    #[test]
    fn ranks_are_one_together_and_follow_the_start() {
        for (edges, start) in [
            (vec![vec![(1, 1.0)], vec![(2, 1.0)], vec![(0, 1.0)]], vec![1.0, 1.0, 1.0]),
            (vec![vec![(1, 3.0), (2, 1.0)], vec![], vec![]], vec![1.0, 1.0, 50.0]),
            (vec![vec![], vec![]], vec![1.0, 10.0]),
        ] {
            let ranks = page_rank(&edges, &start);
            assert!((ranks.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{ranks:?}");
        }
        let even = page_rank(&vec![vec![(1, 1.0)], vec![(2, 1.0)], vec![(0, 1.0)]], &[1.0; 3]);
        assert!(even.iter().all(|rank| (rank - 1.0 / 3.0).abs() < 1e-9), "{even:?}");
        let weighted = page_rank(&vec![vec![(1, 3.0), (2, 1.0)], vec![], vec![]], &[1.0; 3]);
        assert!(weighted[1] > weighted[2] && weighted[2] > weighted[0], "{weighted:?}");
        let personal = page_rank(&vec![vec![(1, 3.0), (2, 1.0)], vec![], vec![]], &[1.0, 1.0, 50.0]);
        assert!(personal[2] > weighted[2], "{personal:?}");
        assert_eq!(page_rank(&Vec::new(), &[]), Vec::<f64>::new());
    }

    #[test]
    fn a_member_is_used_where_its_type_is_and_a_test_helper_by_tests() {
        let mut stack = tags(&["Stack", "push"], &[]);
        (stack.definitions[0].kind, stack.definitions[1].kind) = (SymbolKind::Struct, SymbolKind::Method);
        let files = [
            stack,
            tags(&["helper_one"], &[]),
            tags(&["a"], &[(".push", 9), ("helper_one", 1)]),
            tags(&["b"], &[(".push", 1), ("Stack", 1)]),
            tags(&["c"], &[("helper_one", 1), ("push", 1)]),
        ];
        let graph = |tests: &'static [usize]| {
            let file = |(index, tags)| GraphFile {
                tags,
                language: CodeLanguage::Rust,
                is_discussed: false,
                is_test: tests.contains(&index),
            };
            files.iter().enumerate().map(file).collect::<Vec<_>>()
        };
        let users = |tests: &'static [usize], name: &str| {
            let graph = graph(tests);
            let definers = definers(&graph);
            let uses = |index: usize| uses(index, &graph[index], &definers).any(|(used, _, _)| used == name);
            (0..graph.len()).filter(|index| uses(*index)).collect::<Vec<_>>()
        };
        assert_eq!(users(&[], "push"), [3], "others may push to a list of the language");
        assert_eq!(users(&[], "helper_one"), [2, 4]);
        assert_eq!(users(&[1, 4], "helper_one"), [4]);
    }

    #[test]
    fn a_name_is_used_within_its_family_of_languages() {
        let files = [tags(&["load_all"], &[]), tags(&["start"], &[("load_all", 1)])];
        for (defined, used, expected) in [
            (CodeLanguage::Rust, CodeLanguage::Rust, 1),
            (CodeLanguage::Go, CodeLanguage::Rust, 0),
            (CodeLanguage::Cpp, CodeLanguage::C, 1),
            (CodeLanguage::JavaScript, CodeLanguage::Tsx, 1),
            (CodeLanguage::JavaScript, CodeLanguage::Java, 0),
        ] {
            let file = |(tags, language)| GraphFile { tags, language, is_discussed: false, is_test: false };
            let graph: Vec<_> = files.iter().zip([defined, used]).map(file).collect();
            assert_eq!(uses(1, &graph[1], &definers(&graph)).count(), expected, "{defined:?} {used:?}");
        }
    }

    #[test]
    fn names_that_everybody_defines_say_nothing() {
        let mut files: Vec<_> = (0..60).map(|_| tags(&["new"], &[])).collect();
        files.push(tags(&["rarely_used"], &[("new", 100)]));
        files.push(tags(&["caller"], &[("rarely_used", 1)]));
        assert_eq!(ranked(&files, &[], &[])[0], "rarely_used");
        let file = |tags| GraphFile { tags, language: CodeLanguage::Rust, is_discussed: false, is_test: false };
        for (left_out, is_known) in [(0, false), (9, false), (10, true)] {
            let graph: Vec<_> = files[left_out..].iter().map(file).collect();
            assert_eq!(definers(&graph).contains_key(&("new", CodeLanguage::Rust)), is_known, "{left_out}");
        }
        // Uses in other families of languages affect neither how common a name is nor its weight.
        let used = |other: CodeLanguage| {
            let language = |index: usize| if index < 59 { other } else { CodeLanguage::Rust };
            let file = |(index, tags)| GraphFile { language: language(index), ..file(tags) };
            let graph: Vec<_> = files.iter().enumerate().map(file).collect();
            uses(60, &graph[60], &definers(&graph)).map(|(_, to, weight)| (to, weight)).collect::<Vec<_>>()
        };
        assert_eq!(used(CodeLanguage::Rust), []);
        assert_eq!(used(CodeLanguage::Go), [(59, 10.0 * weight_of("new", 1))]);
        assert!(weight_of("new", 1) < weight_of("news", 1) && weight_of("_private", 1) < weight_of("public", 1));
        assert!(weight_of("道", 1) > weight_of("dao", 1), "one character may be a word");
    }
}
