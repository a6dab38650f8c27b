//! Reads the requests of the user. The first rule that matches a message counts, so exact rules come before vague ones.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::reminder::{Reminder, unquoted};
use crate::text::{Language, language_of};

/// The maximum number of requests in one message, one per line.
const MAX_LINES: usize = 8;
/// The maximum number of polite words before a request.
const MAX_COURTESIES: usize = 8;
/// The longest file name, id or search text that is read from a message, in bytes.
const MAX_ARGUMENT: usize = 512;

/// A request of the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UserRequest {
    Help,
    Time,
    ListFiles(String),
    ReadFile(String),
    WriteFile {
        path: String,
        content: String,
    },
    /// A search for files by a pattern of their names.
    FindFiles(String),
    Search {
        query: String,
        path: String,
    },
    Remember(String),
    Recall(String),
    /// A memory to forget, by its id.
    Forget(String),
    /// A memory to forget, by its text. Its id must be found first.
    FindMemory(String),
    Remind(Reminder),
    ListReminders,
    CancelReminder(String),
    Unknown,
}

/// Patterns of a whole message, and the function that creates a request from the matched parts. If it returns `None`, the next
/// pattern is tried.
type Rule = (&'static [&'static str], fn(&MatchedParts<'_>) -> Option<UserRequest>);

const ENGLISH: &[Rule] = &[
    (
        &[
            "(hi|hello|hey|good (morning|afternoon|evening))( there| daoyou)?",
            "help( me)?|(who|what) are you|what can (you|i) (do|say|ask).{0,30}",
            r".{0,20}\b(connect|configure|set up|add|use|change)\b.{0,20}\b(model|provider|llm|ollama|api key)\b.{0,30}",
        ],
        |_| Some(UserRequest::Help),
    ),
    (
        &[
            "(what('s| is)? )?(the |today's )?(current |local )?(time|date|day)( is it)?( now| today)?",
            "(what|which) (day|date) is (it|today)( today)?|do you (know|have) the time",
        ],
        |_| Some(UserRequest::Time),
    ),
    (
        &[
            "((list|show|view|what are)( me)?( all)?( my| the)? |(my|all) )?(reminders|(scheduled )?jobs)",
            "(what|which) reminders .{0,30}|do i have (any )?reminders.{0,10}",
        ],
        |_| Some(UserRequest::ListReminders),
    ),
    (
        &["(cancel|remove|delete|stop)( the| my)? (reminder|job) (to |about |named |number |for )?#?(?<text>.+)"],
        |found| Some(UserRequest::CancelReminder(found.query()?)),
    ),
    (
        &[
            r"remind me\b(?<text>.*)",
            r"(set|create|add|make)( me)?( a)? reminder\b( for\b)?(?<text>.*)",
            r"(remember|don't forget)(?<text> to\b.*)",
        ],
        |found| Some(UserRequest::Remind(Reminder::read(found.get("text"), Language::En))),
    ),
    (&[r"(?<when>.+?),? remind me\b(?<text>.*)"], |found| {
        Reminder::read_time_first(found.get("when"), found.get("text"), Language::En).map(UserRequest::Remind)
    }),
    // Writing a text and searching the web need a model.
    (&["(write|make|draft) (me|us) .*", r"search (the web|online|the internet)\b.*"], |_| Some(UserRequest::Unknown)),
    (
        &[
            r"(write|save|put) (?<text>.+) (to|into|in) (the )?(file )?(?<path>\S+)",
            r"(write|save)( to| into)?( the)?( file)? (?<path>[^\s:]+):(?<text>.+)",
            r"(create|make|write) (an? )?(new )?(file )?(called |named )?(?<path>\S+) (with|containing)( the)?( contents?| text)?:? (?<text>.+)",
        ],
        |found| Some(UserRequest::WriteFile { path: found.file()?, content: found.text()? }),
    ),
    (
        &[
            r"(find|list|search for|look for)( all)?( the)?( files)?( named| called| matching)? (?<path>\S*[*?]\S*)( files)?",
        ],
        |found| found.path().filter(|path| path.contains(['*', '?'])).map(UserRequest::FindFiles),
    ),
    (&["(read|open|cat|show|display|print|view)( me)?( the)?( contents? of)?( the)?( file)? (?<path>.+)"], |found| {
        Some(UserRequest::ReadFile(found.file()?))
    }),
    (
        &[
            "what do you (remember|know)( about (me|(?<text>.+)))?",
            "(list|show)( me)?( all)?( my| your| the)? memor(y|ies)|recall( (?<text>.+))?",
            r"do you remember (?<text>.+)",
            r"remember (?<text>.+)[?？]",
            "(what|when|who)('s| is) my (?<text>.+)",
        ],
        |found| Some(UserRequest::Recall(found.query().unwrap_or_default())),
    ),
    (
        &[
            "(list|show|see|view)( me)?( all)?( the| my)? (files|folders?|directory|contents?|workspace)( (in|inside|of|under|from) (?<path>.+))?",
            r"(ls|dir|list)( (?<path>\S+))?",
            "(what|which) files (are|do (i|you|we) have)( there| here)?( in (?<path>.+))?",
        ],
        |found| Some(UserRequest::ListFiles(found.folder()?)),
    ),
    (
        &[
            r"what('s| is) in(side)?( the| my)? (folder|directory)( (?<path>\S+))?",
            r"what('s| is) in(side)?( the| my)? (?<path>\S+) (folder|directory)",
        ],
        |found| Some(UserRequest::ListFiles(found.folder()?)),
    ),
    (&["what('s| is) in(side)?( the)?( file)? (?<path>.+)"], |found| found.file_or_folder()),
    (
        &[
            "(find|list|which)( all)?( the)? files (that )?(containing|contain|mentioning|mention|with) (?<text>.+)",
            r"(search|grep|look)( (my |the )?(files|notes))?( for)? (?<text>.+?)( (in|inside|under) (the )?(?<path>\S+)( folder| directory)?)?",
        ],
        |found| Some(UserRequest::Search { query: found.query()?, path: found.folder()? }),
    ),
    (&["forget #?(?<text>[0-9a-z-]*[0-9][0-9a-z-]*)"], |found| Some(UserRequest::Forget(found.query()?))),
    (&["forget (everything|it all|all( of (it|that|them))?|all( the| my| your)? memories)( about me)?"], |_| {
        Some(UserRequest::FindMemory(String::new()))
    }),
    (&["forget (that |about )?(?<text>.+)"], |found| Some(UserRequest::FindMemory(found.query()?))),
    (
        &[
            r"(remember|note down|keep in mind)( that\b)?(?<text>[\s:].*)",
            r"(note( to self)?|don't forget)( that\b|:)(?<text>.*)",
            r"don't forget (?<text>(i|i'm|my|we|our)\b.*)",
        ],
        |found| found.fact().map(UserRequest::Remember),
    ),
];

const CHINESE: &[Rule] = &[
    (
        &[
            "(你好|您好|嗨|早上好|下午好|晚上好|在吗)[啊呀]?|(使用)?帮助|功能|用法|你是谁",
            "[你您]?都?(能|会|可以)(帮我)?做?些?(什么|哪些|啥).{0,10}",
            ".{0,10}(接入|连接|配置|设置|使用|换).{0,10}(模型|密钥).{0,10}",
        ],
        |_| Some(UserRequest::Help),
    ),
    (
        &["(现在|今天|当前)?的?是?(几点钟?|什么时间|时间|日期|几号|多少号|几月几号|星期几|周几|礼拜几)了?[吗呢啊]?"],
        |_| Some(UserRequest::Time),
    ),
    (
        &[
            "((列出|查看|显示|看看|看一下|有哪些|有什么|我有哪些|我有什么|我的)(我的)?(所有|全部)?的?)?(提醒|定时任务)(事项)?",
            "我?(设了|设置了|有)(哪些|什么|几个)提醒",
        ],
        |_| Some(UserRequest::ListReminders),
    ),
    (
        &[
            r"(取消|删除|移除|停止)(提醒|定时任务|任务)[\s：:#]*(?<text>.+)",
            "(取消|删除|移除|停止)(?<text>.+?)[号的]?(提醒|定时任务)",
        ],
        |found| {
            let is_all = |job: &String| ["所有", "全部", "一切"].iter().any(|all| job.starts_with(all));
            found.query().filter(|job| !is_all(job)).map(UserRequest::CancelReminder)
        },
    ),
    (&["(别忘了|别忘记|不要忘了|不要忘记)(?<text>.+)"], |found| {
        match Reminder::read(found.get("text"), Language::Zh) {
            Reminder::NoTime { note } if note.starts_with('我') => found.fact().map(UserRequest::Remember),
            reminder => Some(UserRequest::Remind(reminder)),
        }
    }),
    (
        &[
            "提醒(一下)?我(?<text>.*)",
            "(设|设置|定|添加|创建|新建)一?个?提醒(?<text>.*)",
            "(设|设置|定|添加|创建|新建)一?个?(?<text>.+?)的提醒",
        ],
        |found| Some(UserRequest::Remind(Reminder::read(found.get("text"), Language::Zh))),
    ),
    (&[r"(?<when>.+?)[，,\s]*(记得|请|要)?(提醒|叫|通知)(一下)?我(?<text>.*)"], |found| {
        Reminder::read_time_first(found.get("when"), found.get("text"), Language::Zh).map(UserRequest::Remind)
    }),
    (&["写一?[首篇封则].*"], |_| Some(UserRequest::Unknown)),
    (
        &[
            r"[把将]\s*(?<text>.+?)\s*(写到|写入|写进|保存到|保存为|存到|存入)\s*(文件)?\s*(?<path>.+?)\s*(里面|里|中)?",
            r"(写入|写到|保存到|写)\s*(文件)?\s*(?<path>[^\s：:]+)\s*[：:](?<text>.+)",
            r"(创建|新建|写)(一个)?(文件)?\s*(?<path>[^\s，,]+)[\s，,]*(内容是|内容为|内容|写上)[：:]?(?<text>.+)",
        ],
        |found| Some(UserRequest::WriteFile { path: found.file()?, content: found.text()? }),
    ),
    (
        &[r"(查找|寻找|找一下|找|搜索)(所有|全部)?的?(文件)?\s*(?<path>\S*[*?]\S*)\s*(的?文件)?"],
        |found| found.path().filter(|path| path.contains(['*', '?'])).map(UserRequest::FindFiles),
    ),
    (
        &[
            "(列出|列一下|查看|显示|看看)(?<path>.*?)(目录|文件夹)?(里面|下|里|中)?的?(所有|全部)?的?(文件列表|文件|目录)",
            "[你我您]?(?<path>.*?)(目录|文件夹)?(里面|下|里|中)?都?有(哪些|什么|啥)文件",
            "(?<path>.*?)(目录|文件夹)(里面|下|里|中)?都?有(哪些|什么|啥)(东西)?",
            r"列出\s*(?<path>\S+)",
        ],
        |found| Some(UserRequest::ListFiles(found.folder()?)),
    ),
    (&["(?<path>.+?)(里面|下|里|中)?都?有(哪些|什么|啥)(东西)?"], |found| found.file_or_folder()),
    (
        &[
            r"(读取|读一下|读|打开|查看|看看|看一下|显示)\s*(文件)?\s*(?<path>.+?)\s*(文件)?(里|里面)?(的?内容|写了什么|有什么)?",
            r"(?<path>\S+?)\s*(里|里面|中)?(写了什么|有什么内容|的内容)",
        ],
        |found| Some(UserRequest::ReadFile(found.file()?)),
    ),
    (
        &[
            r"在\s*(?<path>.+?)\s*(目录|文件夹)?(里面|下|里|中|内)(搜索|查找|搜一下|搜|找一下|找)(?<text>.+)",
            "(搜索一下|搜索|查找|搜一下|搜)(?<text>.+)",
        ],
        |found| Some(UserRequest::Search { query: found.query()?, path: found.folder()? }),
    ),
    (
        &[
            "你?还?(记得|记不记得)(关于)?(?<text>.+?)吗",
            "(关于|对于)(?<text>.+?)[，,]?你还?(记得|知道)(什么|哪些|多少)",
            "我的(?<text>.{1,30})是(什么|多少|哪天|几号|谁|哪里)",
            "(回忆一下|回忆)(?<text>.+)",
        ],
        |found| Some(UserRequest::Recall(found.query()?)),
    ),
    (
        &[
            "你还?都?(记得|记住了|知道|了解)我?的?些?(什么|哪些).{0,6}",
            "(查看|列出|显示|看看)?(所有|全部|我的|你的)?(记忆|回忆)",
        ],
        |_| Some(UserRequest::Recall(String::new())),
    ),
    (&[r"(忘记|忘掉|忘了|删除记忆)[\s#]*(?<text>[0-9a-z-]*[0-9][0-9a-z-]*)"], |found| {
        Some(UserRequest::Forget(found.query()?))
    }),
    (&["(忘记|忘掉|忘了|删除记忆)(所有|全部|一切)的?(事情|事|东西|记忆)?"], |_| {
        Some(UserRequest::FindMemory(String::new()))
    }),
    (&["(忘记|忘掉|忘了|删除记忆)(关于)?(?<text>.+)"], |found| {
        Some(UserRequest::FindMemory(found.query()?))
    }),
    (&["(记住|记下|记一下|记录一下|记着)(?<text>.+)"], |found| found.fact().map(UserRequest::Remember)),
];

/// One pattern of a rule, compiled.
struct RequestPattern {
    language: Language,
    regex: Regex,
    request: fn(&MatchedParts<'_>) -> Option<UserRequest>,
}

static PATTERNS: LazyLock<Vec<RequestPattern>> = LazyLock::new(|| {
    let rules = ENGLISH.iter().map(|rule| (Language::En, rule));
    let rules = rules.chain(CHINESE.iter().map(|rule| (Language::Zh, rule)));
    let compiled = |pattern: &str| compile(&format!(r"^(?:{pattern})[\s.!?,。！？，~～]*$"));
    rules
        .flat_map(|(language, (patterns, request))| {
            patterns.iter().map(move |pattern| RequestPattern { language, regex: compiled(pattern), request: *request })
        })
        .collect()
});

/// Polite words before and after a request, which do not change it.
static COURTESY_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^((please|can you|could you|would you|hey|hi|hello|ok|tell me)\b|请问|请你|请|能不能|可以|麻烦你?|帮我|给我|你好|您好|告诉我|我想知道|现在)[\s,，!！.。]*",
    )
});
static COURTESY_AFTER: LazyLock<Regex> =
    LazyLock::new(|| compile(r"[\s,，]*(\b(please|for me|thanks|thank you)|谢谢|好吗|吧)[\s.!。！]*$"));

/// Compiles a pattern in which case does not matter and `.` stands for any character.
fn compile(pattern: &str) -> Regex {
    Regex::new(&format!("(?is){pattern}")).expect("patterns are constants, and each is compiled by the tests")
}

/// Returns the requests of a message, with the language of each; at least one. Several lines are several requests if each line
/// is understood by itself. Otherwise, the message is one request.
pub(super) fn read_requests(text: &str) -> Vec<(UserRequest, Language)> {
    let text = text.trim();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(MAX_LINES + 1).collect();
    if (2..=MAX_LINES).contains(&lines.len())
        && let Some(requests) = lines.iter().map(|line| read_request(line.trim())).collect()
    {
        return requests;
    }
    vec![read_request(text).unwrap_or_else(|| (UserRequest::Unknown, language_of(text)))]
}

/// Reads one request, with or without the polite words around it.
fn read_request(text: &str) -> Option<(UserRequest, Language)> {
    let mut rest = text;
    for _ in 0..=MAX_COURTESIES {
        let plain = COURTESY_AFTER.find(rest).map(|found| &rest[..found.start()]);
        if let Some(found) = match_rules(rest).or_else(|| match_rules(plain?)) {
            return Some(found);
        }
        rest = &rest[COURTESY_BEFORE.find(rest)?.end()..];
    }
    None
}

fn match_rules(text: &str) -> Option<(UserRequest, Language)> {
    PATTERNS.iter().find_map(|pattern| {
        let found = MatchedParts(pattern.regex.captures(text)?);
        Some(((pattern.request)(&found)?, pattern.language))
    })
}

/// The parts that a pattern found in a message: `text`, `path`, `when`.
struct MatchedParts<'a>(Captures<'a>);

impl<'a> MatchedParts<'a> {
    fn get(&self, name: &str) -> &'a str {
        self.0.name(name).map_or("", |found| found.as_str())
    }

    /// Returns the text to store, without its quotes and the colon before it.
    fn text(&self) -> Option<String> {
        let text = self.get("text").trim().trim_start_matches([':', '：', ',', '，', ' ']);
        Some(unquoted(text).unwrap_or(text)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Returns the text to store; `None` for a question or an idiom, such as "remember me?" and 记着呢.
    fn fact(&self) -> Option<String> {
        const QUESTIONS: &str = "what when where who whom whose which why how if whether";
        const PRONOUNS: &str = "me us him her them this that it 我";
        let text = self.text()?;
        let plain = text.trim_end_matches(['.', '。', '!', '！', '~', '～', ' ']).to_lowercase();
        let is_in = |words: &str, word: &str| words.split(' ').any(|known| known == word);
        let first = plain.split([' ', '\'', ',']).next().unwrap_or_default();
        // 酒吧 ends with no particle.
        let is_noun = ["酒吧", "网吧", "贴吧"].iter().any(|noun| plain.ends_with(noun));
        let is_question = is_in(QUESTIONS, first) || (!is_noun && plain.ends_with(['?', '？', '吗', '呢', '吧', '没']));
        (!is_question && !is_in(PRONOUNS, &plain) && !plain.starts_with(['了', '没'])).then_some(text)
    }

    /// Returns the text to search for, without its quotes and the punctuation at its end.
    fn query(&self) -> Option<String> {
        let query = self.get("text").trim().trim_start_matches([':', '：', ' ']);
        let query = query.trim_end_matches(['?', '？', '.', '。', '!', '！', ' ']);
        let query = unquoted(query).unwrap_or(query);
        (!query.is_empty() && query.len() <= MAX_ARGUMENT).then(|| query.to_owned())
    }

    /// Returns the name of a file or folder.
    fn path(&self) -> Option<String> {
        path(self.get("path")).map(|(name, _)| name.to_owned())
    }

    /// Returns a path that is clearly one: in quotes, or with a `.` or `/` in it.
    fn file(&self) -> Option<String> {
        let (name, is_quoted) = path(self.get("path"))?;
        (is_quoted || name.contains(['.', '/']) && !is_number_or_abbreviation(name)).then(|| name.to_owned())
    }

    /// Returns the request to show a file or a folder that is clearly one: a path, or a word for the workspace.
    fn file_or_folder(&self) -> Option<UserRequest> {
        match self.file() {
            Some(path) if has_ending(&path) => Some(UserRequest::ReadFile(path)),
            path => path.or_else(|| self.folder().filter(|path| path == ".")).map(UserRequest::ListFiles),
        }
    }

    /// Returns a folder; the workspace if none is named.
    fn folder(&self) -> Option<String> {
        const HERE: [&str; 11] =
            ["", "here", "there", "workspace", "this", "current", "当前", "工作区", "这里", "这", "所有"];
        let text = self.get("path").trim().trim_end_matches(['?', '？']);
        let text = text.strip_prefix("the ").or(text.strip_prefix("my ")).unwrap_or(text);
        let text =
            [" folder", " directory", "文件夹", "目录"].iter().find_map(|word| text.strip_suffix(word)).unwrap_or(text);
        if HERE.contains(&text.trim()) {
            return Some(".".to_owned());
        }
        path(text).map(|(name, _)| name.to_owned())
    }
}

/// Returns the name of a file or folder, and true if it was in quotes. Without quotes, a name is a single word, and neither an
/// option nor an address.
fn path(text: &str) -> Option<(&str, bool)> {
    let text = text.trim();
    let found = if let Some(name) = unquoted(text) {
        (name.trim(), true)
    } else {
        let name = text.trim_end_matches(['?', '？', '!', '！', '。', ',', '，', '：', ':']);
        let is_dots = name.trim_end_matches('.').rsplit('/').next().is_some_and(str::is_empty);
        (if is_dots { name } else { name.trim_end_matches('.') }, false)
    };
    let (name, is_quoted) = found;
    let is_word = || !name.contains(|c: char| c.is_whitespace() || "，。：；！？、\"`<>|@".contains(c));
    let is_name = !name.is_empty() && name.len() <= MAX_ARGUMENT && !name.contains(char::is_control);
    (is_name && (is_quoted || (is_word() && !name.starts_with('-') && !name.contains("://")))).then_some(found)
}

/// Returns true for a number or an abbreviation: `12.5`, `24/7`, `U.S`.
fn is_number_or_abbreviation(name: &str) -> bool {
    let parts = || name.split(['.', '/']);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts().all(is_number) || parts().all(|part| part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// Returns true if the last part of a path is `NAME.ENDING`.
fn has_ending(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.rsplit_once('.').is_some_and(|(stem, ending)| !stem.trim_matches('.').is_empty() && !ending.is_empty())
}
