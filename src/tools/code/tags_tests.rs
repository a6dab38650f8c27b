//! Tests of the definitions and references that each language's query finds.

use std::time::Duration;

use strum::VariantArray;
use tokio_util::sync::CancellationToken;

use super::language::CodeLanguage;
use super::parser::SourceParser;
use super::tags::{FileTags, extract_tags};
use crate::guard::StopSignal;

fn tags(language: CodeLanguage, source: &[u8]) -> FileTags {
    let stop = StopSignal::new(Duration::from_secs(60), CancellationToken::new());
    extract_tags(&mut SourceParser::new(), language, source, &stop).unwrap()
}

/// A language, a source, its definitions as `kind name line`, names that are references, and names that are not.
type Row<'a> = (CodeLanguage, &'a str, &'a str, &'a str, &'a str);

fn check(rows: &[Row<'_>]) {
    for (language, source, definitions, references, others) in rows {
        let tags = tags(*language, source.as_bytes());
        let mut found: Vec<_> =
            tags.definitions.iter().map(|found| format!("{} {} {}", found.kind, found.name, found.line)).collect();
        let mut expected: Vec<_> = definitions.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{language:?} {source}");
        let found: Vec<_> = tags.references.iter().map(|(name, _)| name.trim_start_matches('.')).collect();
        for name in references.split_whitespace() {
            assert!(found.contains(&name), "{language:?} {name} is not a reference: {found:?}");
        }
        for name in others.split_whitespace() {
            assert!(!found.contains(&name), "{language:?} {name} is a reference: {found:?}");
        }
    }
}

#[test]
fn every_query_finds_something() {
    for language in CodeLanguage::VARIANTS.iter().copied() {
        let source = match language {
            CodeLanguage::Python => "class A:\n    pass\n",
            CodeLanguage::Rust => "struct A;",
            CodeLanguage::Go => "package a\ntype A struct {}\n",
            CodeLanguage::C => "struct A { int x; };",
            _ => "class A { }",
        };
        let found = tags(language, source.as_bytes()).definitions;
        assert_eq!(found.len(), 1, "{language:?}: {found:?}");
        assert_eq!(found[0].name, "A", "{language:?}");
    }
}

#[test]
fn rust_and_python() {
    check(&[
        (
            CodeLanguage::Rust,
            "use crate::a::{Parser, parse_all};\npub struct Store<T> { x: Inner }\nimpl<T> Load for Store<T> {\n    fn load(&self) -> u8 { self.x.read_it(); helper::<u8>(); LIMIT }\n}\ntrait Load { fn load(&self) -> u8; }\nenum Kind { One, Two }\nconst LIMIT: u8 = 1;\nstatic S: u8 = 2;\ntype Alias = Other;\nmacro_rules! mac { () => {} }\nmod inner { pub fn deep() { super::up(); mac2!(x) } }\nunion U { a: u8 }\nfn top(arg: u8) { let value = arg; value; }\nmod file;",
            "struct Store 2, impl Store<T> 3, method load 4, trait Load 6, method load 6, enum Kind 7, variant One 7, variant Two 7, constant LIMIT 8, constant S 9, type Alias 10, macro mac 11, module inner 12, function deep 12, union U 13, function top 14",
            "Parser parse_all Inner read_it helper LIMIT Other up mac2 Load",
            "value arg top deep x",
        ),
        (
            CodeLanguage::Rust,
            "async fn 加载(x: 类型) { 函数(x) }\nstruct Größe;",
            "function 加载 1, struct Größe 2",
            "类型 函数",
            "",
        ),
        // Syntax errors do not affect the rest.
        (
            CodeLanguage::Rust,
            "fn good() { call_it() }\nfn bad( { \nstruct After;\nfn also_good() {}",
            "function good 1, struct After 3, function also_good 4",
            "call_it",
            "",
        ),
        (
            CodeLanguage::Python,
            "import os\nfrom a.b import load_it, C as D\nLIMIT = 1\nclass Store(Base, m.Mixin):\n    x = 1\n    @property\n    def load(self, arg: Arg) -> m.Out:\n        return run_it(arg) + self.call_it(LIMIT)\n    async def plain(self): pass\n@deco\ndef top():\n    local = 1\n    def inner(): pass\ntype Alias = int\n",
            "constant LIMIT 3, class Store 4, method load 7, method plain 9, function top 11, function inner 13, type Alias 14",
            "load_it C Base Mixin Arg Out run_it call_it LIMIT deco",
            "local arg self os",
        ),
        (
            CodeLanguage::Python,
            "def наука(данные):\n    return обработка(данные)\n",
            "function наука 1",
            "обработка",
            "данные",
        ),
        (
            CodeLanguage::Python,
            "def a(:\n  pass\nclass B:\n    def c(self): pass\n",
            "function a 1, class B 3, method c 4",
            "",
            "",
        ),
    ]);
}

#[test]
fn scripts() {
    let shared = "import def1, { named, other as o } from './m';\nexport const LIMIT = 1;\nlet table = {};\nexport class Store extends Base {\n  load(arg) { return runIt(arg).callIt(); }\n  #secret() {}\n  arrow = () => 1;\n}\nfunction top(a) { const local = a; return new Thing(local); }\nfunction* gen() {}\nconst fn1 = (x) => x;\nmodule.exports.out = function () {};\nconst obj = { key: () => 1, plain: 2 };\n";
    let defined = "constant LIMIT 2, constant table 3, class Store 4, method load 5, method #secret 6, method arrow 7, function top 9, function gen 10, function fn1 11, function out 12, constant obj 13, method key 13";
    let used = "def1 named other Base runIt callIt Thing";
    check(&[
        (CodeLanguage::JavaScript, shared, defined, used, "local arg a x plain"),
        (CodeLanguage::TypeScript, shared, defined, used, "local arg a x plain"),
        (CodeLanguage::Tsx, shared, defined, used, "local arg a x plain"),
        (
            CodeLanguage::JavaScript,
            "const 数据 = 1;\nfunction f() { return <Widget a={处理(数据)} />; }",
            "constant 数据 1, function f 2",
            "Widget 处理",
            "",
        ),
        (CodeLanguage::Tsx, "const f = () => <Widget><b>x</b></Widget>;", "function f 1", "Widget", ""),
        (
            CodeLanguage::TypeScript,
            "interface Shape { area(): Num; }\ntype Id = string | Other;\nenum Color { Red }\nabstract class A<T> extends B implements Shape { abstract go(): void; private x: Typed; y = () => 1; }\nnamespace ns { export function inner() {} }\ndeclare function outer(a: Arg): void;\nfunction f() {",
            "interface Shape 1, method area 1, type Id 2, enum Color 3, class A 4, method go 4, method y 4, module ns 5, function inner 5, function outer 6",
            "Num Other B Shape Typed Arg",
            "Red",
        ),
    ]);
}

#[test]
fn go_java_and_the_family_of_c() {
    check(&[
        (
            CodeLanguage::Go,
            "package main\nimport \"fmt\"\nconst Limit = 1\nvar table, other = 1, 2\nvar (\n\tgrouped int\n)\ntype Store struct { x Inner }\ntype Loader interface { Load() error }\ntype ID string\ntype Alias = Other\nfunc (s *Store) Load(arg Arg) error { local := arg; return runIt(local).CallIt(pkg.Default) }\nfunc Top[T any]() { fmt.Println(Max) }\n",
            "constant Limit 3, variable table 4, variable other 4, variable grouped 6, struct Store 8, interface Loader 9, method Load 9, type ID 10, type Alias 11, method Load 12, function Top 13",
            "Inner Other Arg runIt CallIt Default Println Max Store",
            "local fmt table",
        ),
        (CodeLanguage::Go, "package a\nfunc 加载() { Größe() }\nfunc bad( {\n", "function 加载 2", "Größe", ""),
        (
            CodeLanguage::Java,
            "package a;\nimport b.Helper;\n@Marked class Store extends Base implements Loader {\n  static final int LIMIT = 1;\n  Store(Arg arg) { super(arg); }\n  @Override public Out load(int x) { return runIt(x).callIt(new Thing(), MAX); }\n}\ninterface Loader { Out load(int x); }\nenum Kind { ONE }\nrecord Point(int x) {}\n@interface Marked {}\n",
            "class Store 3, field LIMIT 4, constructor Store 5, method load 6, interface Loader 8, method load 8, enum Kind 9, variant ONE 9, class Point 10, interface Marked 11",
            "Helper Base Loader Arg Out runIt callIt Thing MAX Override",
            "x arg",
        ),
        (
            CodeLanguage::Java,
            "class 存储 { void 加载() { 处理(); } void bad( { }",
            "class 存储 1, method 加载 1",
            "处理",
            "",
        ),
        (
            CodeLanguage::C,
            "#define LIMIT 10\n#define MAX(a, b) ((a) > (b))\ntypedef struct node { int x; } node_t;\nunion u { int a; };\nenum kind { ONE, TWO };\nint proto(int a);\nstatic int counter = 1;\nnode_t *make_node(other_t *arg) {\n  int local = run_it(arg);\n  arg->call_it(LIMIT2);\n  return 0;\n}\n",
            "macro LIMIT 1, macro MAX 2, struct node 3, type node_t 3, union u 4, enum kind 5, variant ONE 5, variant TWO 5, function proto 6, variable counter 7, function make_node 8",
            "other_t run_it call_it LIMIT2 node_t",
            "local arg",
        ),
        (CodeLanguage::C, "int f(void) { g(; }\nint h(void) { return 1; }\n", "function f 1, function h 2", "g", ""),
        (
            CodeLanguage::Cpp,
            "namespace ns {\ntemplate <typename T> class Store : public Base<T> {\npublic:\n  Store(int x);\n  ~Store();\n  int load(Arg a) const { return ns2::run_it(a); }\n  bool operator==(const Store &o) const;\n};\nusing Alias = Other;\nint Store::outside(int a) { call_it<int>(a); Thing x(a); return 0; }\nint &ref_out() { static int a; return a; }\n}\n",
            "module ns 1, class Store 2, function Store 4, method ~Store 5, method load 6, method operator== 7, type Alias 9, method outside 10, function ref_out 11",
            "Base Arg run_it Other call_it Thing",
            "x o",
        ),
    ]);
}

#[test]
fn lines_are_those_of_the_whole_definition() {
    let source = "#[derive(Debug)]\npub struct A {\n    x: u8,\n}\n\nfn f(\n) {\n}\n";
    let found = tags(CodeLanguage::Rust, source.as_bytes());
    let places: Vec<_> = found.definitions.iter().map(|found| (found.line, found.start, found.end)).collect();
    assert_eq!(places, [(2, 2, 4), (6, 6, 8)]);
    let found = tags(CodeLanguage::C, b"static inline struct a *\nmake(int a)\n{\n}\n").definitions;
    assert_eq!((found[0].line, found[0].start, found[0].end), (2, 1, 4), "{found:?}");
}
