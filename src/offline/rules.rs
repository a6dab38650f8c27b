//! Everything the responder understands, at a glance. The first rule that fits a message is taken, so what is exact
//! stands before what is vague. The patterns' language is that of `pattern.rs`.

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    Greeting,
    Thanks,
    Goodbye,
    NeverMind,
    Help,
    WhoAreYou,
    Connect,
    Time,
    Date,
    Calculate,
    ListReminders,
    CancelReminder,
    Remind,
    /// A reminder whose time is not understood whole.
    RemindUnclear,
    /// A reminder without a time.
    RemindWhen,
    Message,
    Run,
    Fetch,
    WebSearch,
    WriteFile,
    /// A new file, but nothing to put in it.
    WriteWhat,
    ReadFile,
    ListFiles,
    FindFiles,
    Search,
    Recall,
    /// A question about memory without a subject.
    RecallWhat,
    Forget,
    /// Something to forget that has no id yet.
    ForgetWhich,
    Remember,
    Unknown,
}

/// One intent and the ways to say it.
pub(super) struct Rule {
    pub intent: Intent,
    pub en: &'static [&'static str],
    pub zh: &'static [&'static str],
}

/// Words before a request that change nothing.
pub(super) const POLITE: &[&str] = &[
    "please ",
    "could you ",
    "can you ",
    "would you ",
    "will you ",
    "i want you to ",
    "i'd like you to ",
    "hey ",
    "hi ",
    "hi, ",
    "hello ",
    "hello, ",
    "hello! ",
    "ok ",
    "ok, ",
    "now ",
    "daoyou, ",
    "tell me ",
    "请问",
    "请你",
    "请",
    "能不能",
    "可不可以",
    "你能",
    "可以",
    "麻烦你",
    "麻烦",
    "帮忙",
    "帮我",
    "给我",
    "你好",
    "您好",
    "我想知道",
    "告诉我",
    "我想",
    "我要",
    "现在",
];

/// Words after a request that change nothing.
pub(super) const POLITE_END: &[&str] = &[" please", " now", " for me", " thanks", " thank you", "谢谢", "好吗", "吧"];

/// The rules, in order.
pub(super) const RULES: &[Rule] = &[
    Rule {
        intent: Intent::Greeting,
        en: &["[hi|hello|hey|yo|greetings|good morning|good afternoon|good evening][| there| daoyou| again]"],
        zh: &["[你好|您好|嗨|哈喽|哈啰|早上好|早安|上午好|中午好|下午好|晚上好|在吗|在么|在不在][|啊|呀|呢]"],
    },
    Rule {
        intent: Intent::Thanks,
        en: &[
            "[thanks|thank you|thx|cheers][| a lot| very much| so much| daoyou]",
            "[great|good|nice|cool|perfect|well done]",
        ],
        zh: &["[谢谢|多谢|感谢|谢了|辛苦了][|你|您|啦|了]", "[不错|太好了|很好|真棒|太棒了]"],
    },
    Rule {
        intent: Intent::Goodbye,
        en: &["[bye|goodbye|bye bye|good night|see you][| daoyou| later| soon]"],
        zh: &["[再见|拜拜|晚安|回头见|回见][|了|啦]"],
    },
    Rule {
        intent: Intent::NeverMind,
        en: &["[ok|okay|all right|never mind|nevermind|forget it|forget about it|cancel|stop]"],
        zh: &["[好|好的|嗯|收到|算了|没事|没事了|不用了|不必了|取消]"],
    },
    Rule {
        intent: Intent::Help,
        en: &[
            "[help|help me|usage|commands|examples|options]",
            "what can you *",
            "what do you [do|understand|know how to do]*",
            "what can i [do|say|ask]*",
            "what are you able to do*",
            "what [tools|commands|skills] *",
            "how [do|can|should] i [use|talk to] [you|this|it]*",
        ],
        zh: &[
            "[帮助|使用帮助|功能|用法|命令|示例]",
            "[你|您|][都|][能|会|可以][帮我|为我|][做|干|做些|干些][什么|啥|哪些]*",
            "[你|您|][有|支持|懂][什么|哪些][功能|命令|工具|指令|技能]*",
            "[我|][怎么|如何|该怎么][使用|用][你|您|它]*",
            "[你|您|][都|][能|会|可以][什么|啥|哪些]*",
            "*能做什么*",
        ],
    },
    Rule {
        intent: Intent::Time,
        en: &[
            "[|the |current |the current |local ]time[| now]",
            "what time is it*",
            "what[ is|'s|s] the [|current |local ]time*",
            "what time it is*",
            "do you [know|have] [the time|what time it is]*",
            "the time",
        ],
        zh: &[
            "[|现在|当前|此刻][是|][几点|什么时间|什么时候|多少点][|了|钟|钟了][|吗|呢|啊|呀]",
            "[现在|当前][的|][时间|几点]*",
            "时间",
            "报时",
        ],
    },
    Rule {
        intent: Intent::Date,
        en: &[
            "[|the |today's |current ]date[| today]",
            "what[ is|'s|s] [|the |today's |the current ][date|day]*",
            "what[ is|'s|s] today*",
            "what [day|date] [is|of]*",
            "which day is*",
        ],
        zh: &[
            "今天[是|][几号|多少号|几月几号|几月几日|星期几|周几|礼拜几|什么日子]*",
            "[今天|今天的|当前|现在的|]日期*",
            "[今天|]星期几*",
        ],
    },
    Rule {
        intent: Intent::Calculate,
        en: &[
            "[calculate|compute|calc|work out|eval|what is|what's|how much is|how much are|solve] {sum}",
            "{plainsum}",
        ],
        zh: &[
            "[计算|计算一下|算一下|算算|算|求]{sum}",
            "[计算|计算一下|算一下|算算|算|]{sum}[等于|是|][多少|几][？|?|]",
        ],
    },
    Rule {
        intent: Intent::ListReminders,
        en: &[
            "[list|show|show me|view|see|what are|check][| all][| my| the] [reminders|scheduled jobs|scheduled tasks|cron jobs|jobs|schedule]",
            "[my |all |all my |]reminders",
            "[what|which] reminders*",
            "do i have [any |]reminders*",
        ],
        zh: &[
            "[列出|查看|显示|看看|看一下|列一下|有什么|有哪些|我有哪些|我有什么|我的|][所有|全部|所有的|全部的|我的|][提醒|提醒事项|定时任务|定时提醒]",
            "[我|][现在|][有|设了|设置了][哪些|什么|几个]提醒*",
        ],
    },
    Rule {
        intent: Intent::CancelReminder,
        en: &[
            "[cancel|remove|delete|stop|clear][| the| my] [reminder|job|cron job|scheduled job] [number |no. |with id |id |]{id}",
            "[cancel|remove|delete|stop|clear][| the| my] [reminder|job|cron job|scheduled job] [to |about |called |named |for |]{query}",
        ],
        zh: &[
            "[取消|删除|移除|去掉|停止][提醒|定时任务|任务|定时提醒]{id}",
            "[取消|删除|移除|去掉|停止][提醒|定时任务|任务|定时提醒]{query}",
            "[取消|删除|移除]{id}[号|][的|]提醒",
            "[取消|删除|移除]{query}的[提醒|定时任务]",
        ],
    },
    Rule {
        intent: Intent::Remind,
        en: &[
            "remind me {when}",
            "remind me {when}[ that| about|:] {note}",
            "remind me {when}[ to|,] {after}",
            "remind me [to |that |about |of |]{before} {when}",
            "{when}[,|] remind me [to |that |about |of |]{note}",
            "[set|create|add|make][| me] [a |an |]reminder [for |]{when}[ that| about|:] {note}",
            "[set|create|add|make][| me] [a |an |]reminder [for |]{when}[ to|,] {after}",
            "[set|create|add|make][| me] [a |an |]reminder [to |that |about |for |of ]{before} {when}",
            "[set|create|add|make][| me] [a |an |]reminder [for |]{when}",
            "remind me {when} {after}",
        ],
        zh: &[
            "{when}[的时候|时|][，|,| |][记得|请|要|][提醒|叫|通知][一下|][我|下我]{note}",
            "[提醒|叫|通知][一下|]我[，|,|：|:|][在|]{when}[，|,|去|要|]{after}",
            "[提醒|叫|通知][一下|]我{before}[，|,|][在|]{when}",
            "{when}[提醒|叫|通知][一下|]我",
            "[设|设置|设个|设一个|设置一个|定|定个|定一个|添加|添加一个|创建|创建一个|建个|新建]{when}的提醒[：|:|，|,|]{note}",
            "[设|设置|设个|设一个|设置一个|定|定个|定一个|添加|添加一个|创建|创建一个|建个|新建]提醒[：|:|，|,|][在|]{when}{after}",
        ],
    },
    Rule {
        intent: Intent::RemindUnclear,
        en: &[
            "remind me [to |that |about |of |]{unclear}",
            "{unclear}[,|] remind me [to |that |about |of |]{note}",
            "{unclear}[,|] remind me",
            "[set|create|add|make][| me] [a |an |]reminder [for |to |about |of |]{unclear}",
        ],
        zh: &[
            "{unclear}[的时候|时|][，|,| |][记得|请|要|][提醒|叫|通知][一下|][我|下我]{note}",
            "{unclear}[提醒|叫|通知][一下|]我",
            "[提醒|叫|通知][一下|]我[，|,|：|:|][在|]{unclear}",
            "[设|设置|设个|设一个|设置一个|定|定个|定一个|添加|添加一个|创建|创建一个|建个|新建]提醒[：|:|，|,|][在|]{unclear}",
            "[设|设置|设个|设一个|设置一个|定|定个|定一个|添加|添加一个|创建|创建一个|建个|新建]{unclear}的提醒*",
        ],
    },
    Rule {
        intent: Intent::RemindWhen,
        en: &[
            "remind me",
            "remind me [to |that |about |]{note}",
            "[set|create|add|make] [a |]reminder",
            "[set|create|add|make] [a |]reminder [to |for |]{note}",
        ],
        zh: &[
            "提醒我",
            "提醒我{note}",
            "[设|设置|设个|设一个|设置一个|定个|添加|创建]提醒",
            "[设|设置|设个|设一个|添加|创建]提醒{note}",
        ],
    },
    Rule {
        intent: Intent::Message,
        en: &[
            "send [me |us |]a message[: | saying | that says | with | ]{note}",
            "message me[: | ]{note}",
            "send message[: | ]{note}",
        ],
        zh: &["[给我|][发|发送|发一条|发个|发一个]消息[说|：|:|]{note}"],
    },
    Rule {
        intent: Intent::Run,
        en: &[
            "$ {shell}",
            "[run|execute|exec|run the command|run command|execute the command|run the shell command|shell][ |: |:]{command}",
        ],
        zh: &["[运行|执行|跑|跑一下|运行一下|执行一下|运行命令|执行命令|运行指令]{command}"],
    },
    Rule {
        intent: Intent::Fetch,
        en: &["[fetch|open|get|read|visit|browse|download|go to|load][| the page| the url] {url}"],
        zh: &["[打开|访问|获取|抓取|读取|读|看看|查看|下载][网页|网址|链接|页面|]{url}"],
    },
    Rule {
        intent: Intent::WebSearch,
        en: &[
            "[search|look on|search on] [the web|the internet|online|the net|google] for {query}",
            "[google|web search|search online for|look up online] {query}",
        ],
        zh: &["[上网|网上|在网上|联网][搜索|搜一下|搜|查一下|查询|查]{query}", "[百度|谷歌][一下|搜索]{query}"],
    },
    // Something to be thought up is for a model, though it may sound like a file to write.
    Rule {
        intent: Intent::Unknown,
        en: &["[write|make|draft|compose] [me|us] {text}"],
        zh: &["[给我|帮我|替我|]写[一|][首|篇|封|则]{text}"],
    },
    Rule {
        intent: Intent::WriteFile,
        en: &[
            "[write|save|put|store] {text} [to|into|in|as] [the file |a file |file |a file called |a file named ]{name}",
            "[write|save|put|store] {text} [to|into|in|as] {path}",
            "[create|make|write|add] [a |the |a new |][new |text |]file [called |named |]{name} [with|containing|that says|saying|that contains][ the|][ content| contents| text|][ | of | saying |: |:]{note}",
            "[create|make|write|add] [a |the |a new |new |]file [called |named |]{name}:{text}",
            "[create|make] {path} [with|containing|that says|saying][ the|][ content| contents| text|][ | of |: |:]{note}",
            "[write|save][ to| into| in|][ the file| file|] {path}:{text}",
        ],
        zh: &[
            "[写|写入|保存]{text}到[文件|]{path}[里|里面|中|]",
            "[把|将]{text}[写到|写入|写进|保存到|保存进|存到|存入|存进|保存为|存为|放到|放进][文件|]{path}[|里|中|里面|文件|文件里|文件中]",
            "[创建|新建|建立|建|写|写入|生成][一个|个|][名为|叫|][文件|]{path}[的文件|][，|,|][内容是|内容为|内容：|内容:|内容|写上|写着]{note}",
            "[写入|写到|写|保存到][文件|]{path}[：|:]{text}",
            "[往|在|向]{path}[里面|里|中|][写入|写上|写下|写]{note}",
        ],
    },
    Rule {
        intent: Intent::WriteWhat,
        en: &[
            "[create|make|write] [a |an |the |a new |][new |empty |text |]file [called |named |]{name}",
            "[create|make] {path}",
        ],
        zh: &["[创建|新建|建立|建|写][一个|个|][名为|叫|空|空的|新|新的|][文件|]{path}[的文件|文件|]"],
    },
    Rule {
        intent: Intent::FindFiles,
        en: &[
            "[find|locate|where is] {file}",
            "[find|search for|look for|list|show|glob|which files match][| all][| the][| files][| named| called| matching| like] {glob}[| files]",
            "[find|search for|look for|where is|locate][| all][| the] [file|files][| named| called] {name}",
        ],
        zh: &[
            "[查找|找|找到|寻找|找一下]{file}",
            "[查找|找|找到|搜索|寻找|列出|找一下][所有|全部|][的|][文件|]{glob}[的|][文件|]",
            "[查找|找|找到|搜索|寻找|找一下]文件{name}",
        ],
    },
    Rule {
        intent: Intent::ReadFile,
        en: &[
            "[read|open|cat|show|display|print|view|see][| me][| the] file [called |named |]{name}",
            "[read|show|show me|display|print|view] the [content|contents|text] of [the file |file |]{path}",
            "[read|open|cat|show|display|print|view|see][| me] {path}",
            "what[ is|'s|s] [in|inside] [the file |file ]{name}",
            "what[ is|'s|s] [in|inside] {file}",
            "what does {path} say",
        ],
        zh: &[
            "[读取|读一下|读|打开|查看|看看|看一下|显示|看]文件{name}[的内容|里的内容|里有什么|]",
            "[读取|读一下|读|打开|查看|看看|看一下|显示|看]{file}[的内容|文件的内容|里的内容|里有什么|里面有什么|写了什么|这个文件|文件|]",
            "[读取|读一下|读]{path}",
            "{file}[里|里面|中|][写了什么|有什么内容|有什么|是什么内容|的内容]",
        ],
    },
    Rule {
        intent: Intent::ListFiles,
        en: &[
            "[ls|dir] {folder}",
            "[what|which] files do *",
            "[list|show|show me|see|view][| all][| the| my] [files|files here|directory|folder|folders|files and folders|workspace]",
            "[list|show|show me|see|view][| all][| the] [files|files and folders|contents|content|everything] [in|inside|of|under|from] {folder}",
            "[list|show] [the directory|the folder|directory|folder] {folder}",
            "[ls|dir|list files|list]",
            "[ls|dir|list|list dir|list files] {path}",
            "[what|which] files are [there|here]*",
            "[what|which] files [are|do you have] [in|inside] {folder}",
            "what[ is|'s|s] [in|inside] [the |my |]workspace",
            "what[ is|'s|s] [in|inside] [the folder |folder |the directory |directory |]{path}",
        ],
        zh: &[
            "[列出|列一下|列|显示|查看|看看|看一下][目录|文件夹]{folder}",
            "[看看|看一下|看|][有什么|有哪些|有啥]文件*",
            "[列出|列一下|列|显示|查看|看看|看一下|有哪些|有什么][所有|全部|当前|][的|][文件列表|文件夹|文件|目录]",
            "[列出|列一下|列|显示|查看|看看|看一下]{folder}[目录下|目录里|目录中|文件夹里|文件夹下|文件夹中|文件夹|目录|里面|里|下|中|内|][的|][所有|全部|][文件|内容]",
            "[列出|列一下|列|显示|查看|看看|看一下]{folder}[目录|文件夹]",
            "[列出|列一下|列]{path}",
            "[看看|看一下|看|]{folder}[目录下|目录里|目录中|文件夹里|文件夹下|里面|里|下|中|内|][都|][有哪些|有什么|有啥][文件|]",
        ],
    },
    Rule {
        intent: Intent::Search,
        en: &[
            "[find|list|show|which|what][| all][| the] files [containing|contain|that contain|mentioning|mention|that mention|with] {query}",
            "[search|grep|look|search files|search the files|search my files|search my notes] for {query} [in|inside|under] {folder}",
            "[search|grep|find] {query} [in|inside|under] {folder}",
            "search [in |]{path} for {query}",
            "[search|grep|look|search files|search the files|search my files|search my notes] for {query}",
            "[search|grep] {query}",
            "where is {query} [mentioned|used|defined|written]",
        ],
        zh: &[
            "[查找|找|搜索|列出|哪些文件][所有|][包含|含有|提到]{query}[的文件|]",
            "在{folder}[目录下|目录里|目录中|文件夹里|里面|里|中|下|内|][搜索|搜一下|搜|查找|找一下|找|检索]{query}",
            "[搜索一下|搜索|搜一下|搜|查找|检索]{query}",
        ],
    },
    Rule {
        intent: Intent::RecallWhat,
        en: &[
            "what do you [remember|know]",
            "what do you [remember|know] about me",
            "[recall|memory|memories]",
            "[list|show|show me][| me][| all][| my| your| the] [memory|memories]",
        ],
        zh: &[
            "你[还|][都|][记得|记住了|知道][什么|些什么|哪些]*",
            "[关于我|对我|对于我][，|,|]你[还|][都|][记得|知道|了解][什么|些什么|哪些|多少]*",
            "你[还|][都|][记得|知道|了解][关于|]我[的|些|][什么|哪些][|吗|事|事情]",
            "[回忆|记忆]",
            "[查看|列出|显示|看看][|所有|全部|我的|你的]记忆",
        ],
    },
    Rule {
        intent: Intent::Recall,
        en: &[
            "[what is|what's|whats|when is|when's|who is|who's] my {query}",
            "[recall|what do you remember about|what do you know about|do you remember what|do you remember that|do you remember|search memory for|search your memory for] {query}",
        ],
        zh: &[
            "我的{query}是[什么|多少|哪天|哪一天|几号|几月几号|谁|哪个|哪里]*",
            "你[还|][记得|记不记得][关于|]{query}[吗|么]",
            "[关于|对于|对]{query}[，|,|]你[还|][记得|知道]什么*",
            "[回忆一下|回忆|回想一下|回想|在记忆中查找|搜索记忆|查找记忆]{query}",
            "还记得{query}[吗|么]",
        ],
    },
    Rule {
        intent: Intent::Forget,
        en: &["[forget|delete memory|remove memory|forget memory|forget number|forget note] {id}"],
        zh: &["[忘记|忘掉|忘了|删除记忆|删掉记忆|忘记记忆]{id}"],
    },
    Rule {
        intent: Intent::ForgetWhich,
        en: &["forget [that |about |what i said about |]{query}"],
        zh: &["[忘记|忘掉|忘了|删除记忆][关于|]{query}"],
    },
    Rule {
        intent: Intent::Remember,
        en: &[
            "[remember that|remember this:|remember:|remember|note that|note down|make a note that|make a note:|take a note:|note:|keep in mind that|don't forget that|don't forget] {note}",
        ],
        zh: &["[记住|记下|记一下|记录一下|记录|记得|记着|别忘了|不要忘记]{note}"],
    },
    Rule { intent: Intent::Run, en: &["{unix}"], zh: &["{unix}"] },
    Rule {
        intent: Intent::WhoAreYou,
        en: &[
            "who are you*",
            "[what|which] [model|llm|ai] are you*",
            "what are you*",
            "what[ is|'s|s] your name*",
            "are you [an |a |the |]*[ai|bot|robot|model|llm|human|person|chatgpt|gpt|claude|real]*",
            "[introduce yourself|about|version]",
        ],
        zh: &[
            "你是[谁|什么|啥|哪个]*",
            "你叫什么*",
            "你是*[AI|ChatGPT|GPT|Claude|人工智能|机器人|模型|真人|人]*",
            "[自我介绍|介绍一下你自己|介绍一下自己]",
        ],
    },
    Rule {
        intent: Intent::Connect,
        en: &[
            "*[connect|configure|set up|add|use|change|switch|install|enable|choose|select]*[model|llm|provider|openai|anthropic|ollama|deepseek|claude|gpt]*",
            "*api key*",
            "*[OPENAI_API_KEY|ANTHROPIC_API_KEY]*",
        ],
        zh: &[
            "*[接入|连接|配置|设置|接|换|切换|使用|用|添加|选择]*[模型|OpenAI|Ollama|DeepSeek|Claude|GPT|通义]*",
            "*[密钥|api key|apikey]*",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_intent_can_be_said_in_both_languages() {
        for rule in RULES {
            assert!(!rule.en.is_empty() && !rule.zh.is_empty(), "{:?}", rule.intent);
            for written in rule.en.iter().chain(rule.zh) {
                assert_eq!(written.matches('[').count(), written.matches(']').count(), "{written}");
                for (at, _) in written.match_indices('{') {
                    let name = written[at + 1..].split('}').next().unwrap_or_default();
                    assert!(crate::offline::slots::Slot::named(name).is_some(), "{written}: {name}");
                }
            }
        }
    }
}
