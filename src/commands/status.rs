//! `daoyou status` and `daoyou models`, for people.

use std::fmt::Display;
use std::io::{self, Write};

use daoyou_channels::text::display_width;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::output::{self, tr};
use super::render::{self, TableColumns, text};
use super::translation::{tr_fill, translate};
use crate::config::NO_CREDENTIALS;
use crate::gateway::format_age;
use crate::text::format_size;

const COLUMNS: TableColumns = &[
    ("", "mark"),
    ("PROVIDER", "name"),
    ("KEY", "needs"),
    ("USUAL MODEL", "model"),
    ("CONTEXT", "context"),
    ("A MILLION TOKENS", "price"),
];

/// The maximum number of models that are listed for a service.
const NAMES: usize = 500;

/// The width of a label, in columns.
const LABEL_WIDTH: usize = 10;

/// Returns the label of a line, padded to the width of all labels.
fn label(en: &'static str, zh: &'static str) -> String {
    let label = tr(en, zh);
    format!("{label}{}", " ".repeat(LABEL_WIDTH.saturating_sub(display_width(label))))
}

/// Returns the state of a channel or a turn for people.
fn state(word: &str) -> String {
    let zh = match word {
        "running" => "运行中",
        "interrupted" => "已中断",
        "down" => "未运行",
        "starting" => "正在启动",
        "disabled" => "已停用",
        "stopped" => "已停止",
        "failed" => "失败",
        "retrying" => "正在重试",
        "done" => "完成",
        "queued" => "排队中",
        "waiting" => "等待中",
        "dead" => "已放弃",
        other => other,
    };
    tr(word, zh).to_owned()
}

/// Writes the status, the most important lines first.
pub fn status(status: &Value, mut out: impl Write) -> io::Result<()> {
    head(status, &mut out)?;
    if status["read_only"] == true {
        // A read-only gateway has no store to read.
        return Ok(());
    }
    writeln!(out, "{}{}", label("model", "模型"), text(&status["model"]))?;
    let sandbox = &status["sandbox"];
    match sandbox["in_force"].as_str() {
        Some(words) => writeln!(out, "{}{}", label("sandbox", "沙箱"), translate(words))?,
        None => {
            let reason = translate(&text(&sandbox["reason"]));
            writeln!(out, "{}{}{reason}", label("sandbox", "沙箱"), tr("none: ", "无："))?;
        }
    }
    services(status, &mut out)?;
    database(&status["database"], &mut out)?;
    let losses = render::items(&status["losses"]);
    for loss in losses {
        let label = if loss["whole"] == true { label("repaired", "已修复") } else { label("LOST", "丢失") };
        writeln!(out, "{label}{}: {}", text(&loss["at"]), translate(&text(&loss["what"])))?;
    }
    if !losses.is_empty() {
        writeln!(out, "          {} daoyou status --acknowledge", tr("to dismiss this notice:", "确认后不再显示："))?;
    }
    write_lines(label("channels", "渠道"), &status["channels"], channel_line, &mut out)?;
    queues(status, &mut out)?;
    let today = &status["today"];
    let turns = if today["turns"] == 1 { "{} turn, {}" } else { "{} turns, {}" };
    let summaries = [
        (label("jobs", "任务"), jobs(&status["jobs"])),
        (label("today", "今天"), Some(tr_fill(turns, "{} 个回合，{}", &[&today["turns"], &render::used(today)]))),
        (label("heartbeat", "心跳"), heartbeat(&status["heartbeat"])),
        (label("memory", "记忆"), memory(&status["memory"])),
        (label("caches", "缓存"), caches(&status["caches"])),
    ];
    for (label, summary) in summaries {
        summary.into_iter().try_for_each(|summary| writeln!(out, "{label}{summary}"))?;
    }
    write_lines(label("runs", "后台"), &status["processes"], process_line, &mut out)?;
    write_lines(label("turns", "回合"), &status["last_turns"], |turn| turn_line(turn, is_up(status)), &mut out)
}

/// Writes a line for each item of a list, the first one with `lead`.
fn write_lines(mut lead: String, list: &Value, line: impl Fn(&Value) -> String, mut out: impl Write) -> io::Result<()> {
    for item in render::items(list) {
        writeln!(out, "{lead}{}", line(item))?;
        lead = " ".repeat(LABEL_WIDTH);
    }
    Ok(())
}

/// Writes the model services for which messages wait, and those that fail.
fn services(status: &Value, mut out: impl Write) -> io::Result<()> {
    let services = || render::items(&status["services"]).iter();
    for row in services() {
        let since = ago(&row["since"]).map(|age| tr_fill(", for {}", "，已 {}", &[&age])).unwrap_or_default();
        let (provider, message, code) = (text(&row["provider"]), translate(&text(&row["message"])), text(&row["code"]));
        let line = tr_fill("for {}{}: {} ({})", "{}{}：{}（{}）", &[&provider, &since, &message, &code]);
        writeln!(out, "{}{line}", label("WAITS", "等待服务"))?;
    }
    let is_named = |row: &&Value| services().any(|named| named["provider"] == row["provider"]);
    for row in render::items(&status["circuits"]).iter().filter(|row| !is_named(row)) {
        let fails = tr("fails again and again: ", "连续失败：");
        writeln!(out, "          {} {fails}{}", text(&row["provider"]), circuit_words(row))?;
    }
    for row in render::items(&status["failures"]).iter().filter(|row| !is_named(row)) {
        writeln!(out, "          {}", last_failure(&row["provider"], &text(&row["error"])))?;
    }
    Ok(())
}

/// Writes the sizes of the database.
fn database(database: &Value, mut out: impl Write) -> io::Result<()> {
    let size = |key: &str| format_size(database[key].as_u64().unwrap_or(0));
    let words = match database["size"].as_u64() {
        Some(_) => {
            let sizes: [&dyn Display; 3] = [&size("size"), &size("wal"), &size("free")];
            tr_fill("{}, log {}, not in use {}", "{}，日志 {}，空闲 {}", &sizes)
        }
        None => tr("none yet", "尚未创建").to_owned(),
    };
    writeln!(out, "{}{words}", label("database", "数据库"))
}

/// Writes the numbers of waiting, running and dead messages.
fn queues(status: &Value, mut out: impl Write) -> io::Result<()> {
    let queues = &status["queues"];
    let waits = |count: &str, oldest: &str| match ago(&queues[oldest]) {
        Some(age) => tr_fill("{} (oldest {})", "{}（最早 {}）", &[&queues[count], &age]),
        None => queues[count].to_string(),
    };
    let waiting = match queues["waiting"].as_u64() {
        None | Some(0) => String::new(),
        Some(waiting) => tr_fill(", {} waiting", "，{} 条在等待", &[&waiting]),
    };
    let (en, zh) = if is_up(status) { ("{} running", "处理中 {}") } else { ("{} interrupted", "已中断 {}") };
    let running = tr_fill(en, zh, &[&queues["running"]]);
    let (inbound, outbound) = (waits("inbound", "oldest_inbound"), waits("outbound", "oldest_outbound"));
    let (en, zh) = ("in {}, {}{}; out {}; dead letters {}", "待处理 {}，{}{}；待投递 {}；死信 {}");
    let words = tr_fill(en, zh, &[&inbound, &running, &waiting, &outbound, &status["dead_letters"]]);
    writeln!(out, "{}{words}", label("queues", "队列"))?;
    let mut note = |key: &str, [one, more, zh]: [&str; 3], command: &str| match status[key].as_u64() {
        None | Some(0) => Ok(()),
        Some(count) => {
            let words = tr_fill(if count == 1 { one } else { more }, zh, &[&count]);
            writeln!(out, "          {words}{}`{command}`", tr(": ", "："))
        }
    };
    let calls = ["{} call waits for your approval", "{} calls wait for your approval", "{} 个调用在等你批准"];
    note("approvals", calls, "daoyou approvals list")?;
    let messages = ["{} message was given up", "{} messages were given up", "{} 条消息已放弃处理"];
    note("dead_messages", messages, "daoyou queue list")
}

/// Formats a turn with its id.
fn turn_line(turn: &Value, is_up: bool) -> String {
    let error = turn["error"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let when = ago(&turn["at"]).map(|age| tr_fill("{} ago", "{} 前", &[&age])).unwrap_or_default();
    let (session, id) = (render::session_key(&turn["session"]), text(&turn["turn"]));
    let outcome = render::turn_state(&turn["outcome"], is_up);
    format!("{}{error}  {session}  {when}  {id}", state(&outcome))
}

/// Returns true if a gateway runs.
fn is_up(status: &Value) -> bool {
    status["gateway"] == "up"
}

/// Writes whether and where the gateway is running, and whether it accepts messages.
fn head(status: &Value, mut out: impl Write) -> io::Result<()> {
    let up = is_up(status);
    let head = match up {
        // A gateway that was asked over HTTP reports no process.
        true if status["pid"].is_null() => tr("up, read-only", "正在运行（只读）").to_owned(),
        true => {
            let (uptime, version) = (text(&status["uptime"]), text(&status["version"]));
            let (en, zh) = ("up {}, pid {}, version {}", "已运行 {}，进程 {}，版本 {}");
            tr_fill(en, zh, &[&uptime, &status["pid"], &version])
        }
        false => tr("down; `daoyou gateway` starts it", "未运行；用 `daoyou gateway` 启动").to_owned(),
    };
    writeln!(out, "{}{head}", label("gateway", "网关"))?;
    let intake = text(&status["parts"]["intake"]);
    if up && intake != "ok" {
        writeln!(out, "          {}{}", tr("takes no messages: ", "不接收消息："), translate(&intake))?;
    }
    for missing in render::items(&status["missing"]) {
        let missing = text(missing);
        let label = match missing.contains(NO_CREDENTIALS) {
            // The service may start all the same.
            true => tr("not checked: ", "未检查："),
            false => tr("it cannot start: ", "无法启动："),
        };
        writeln!(out, "          {label}{}", translate(&missing))?;
    }
    writeln!(out, "{}{}", label("home", "主目录"), text(&status["home"]))?;
    writeln!(out, "{}{}", label("listen", "监听"), text(&status["listen"]))?;
    if status["page"].is_string() {
        let hint = tr("(`daoyou open` logs in)", "（用 `daoyou open` 登录）");
        writeln!(out, "{}{} {hint}", label("page", "网页"), text(&status["page"]))?;
    }
    if let Some(url) = status["login"]["url"].as_str() {
        let (en, zh) = ("(once, within {} s)", "（{} 秒内有效，仅可使用一次）");
        let hint = tr_fill(en, zh, &[&status["login"]["expires_in"]]);
        writeln!(out, "{}{} {hint}", label("login", "登录"), output::field(url))?;
    }
    let waiting: Vec<_> = render::items(&status["restart_needed"]).iter().map(text).collect();
    match waiting.is_empty() {
        true => Ok(()),
        false => {
            let words = tr("a restart is needed for ", "需要重启才能生效：");
            writeln!(out, "          {words}{}", waiting.join(tr(", ", "、")))
        }
    }
}

/// Summarizes the scheduled jobs, if there are any.
fn jobs(jobs: &Value) -> Option<String> {
    let count = |key: &str| jobs[key].as_u64().unwrap_or(0);
    let (enabled, disabled, paused) = (count("enabled"), count("disabled"), count("paused"));
    if enabled + disabled == 0 {
        return None;
    }
    let mut line = tr_fill("{}, {} disabled", "{} 个，停用 {} 个", &[&enabled, &disabled]);
    if jobs["next"].is_string() {
        line.push_str(&tr_fill("; next {}", "；下次 {}", &[&text(&jobs["next"])]));
    }
    if paused > 0 {
        let en = "; {} stopped by daoyou itself: `daoyou cron list`";
        line.push_str(&tr_fill(en, "；{} 个因连续失败被暂停：`daoyou cron list`", &[&paused]));
    }
    if jobs["runs"] == false {
        line.push_str(tr("; none runs (cron.enabled = false)", "；均不运行（cron.enabled = false）"));
    }
    Some(line)
}

/// Summarizes the memory, if it is not empty.
fn memory(memory: &Value) -> Option<String> {
    let (known, index) = (memory["known"].as_u64().unwrap_or(0), &memory["index"]);
    let count = |key: &str| index[key].as_u64().unwrap_or(0);
    if known + count("messages") + count("behind") == 0 {
        return None;
    }
    let en = match count("messages") {
        1 => "{} known, {} message can be found",
        _ => "{} known, {} messages can be found",
    };
    let mut line = tr_fill(en, "记得 {} 条，可搜索 {} 条消息", &[&known, &count("messages")]);
    if count("behind") > 0 {
        line.push_str(&tr_fill(", {} to come", "，还有 {} 条待索引", &[&count("behind")]));
    }
    if index["made_anew"] == true {
        line.push_str(tr("; the index is being rebuilt", "；正在重建索引"));
    }
    if memory["enabled"] == false {
        line.push_str(tr(
            "; nothing is consolidated (memory.enabled = false)",
            "；不整理记忆（memory.enabled = false）",
        ));
    }
    Some(line)
}

/// Summarizes the heartbeat, if it is enabled.
fn heartbeat(heartbeat: &Value) -> Option<String> {
    if heartbeat["enabled"] != true {
        return None;
    }
    let next = heartbeat["next"].as_str().and_then(|next| next.parse::<Timestamp>().ok());
    let next = next.map_or_else(
        || tr("on, waits for a gateway", "已启用，等待网关启动").to_owned(),
        |next| tr_fill("next {}", "下次 {}", &[&output::local_time(next)]),
    );
    let (en, zh) = ("{}; {} of {} tokens today", "{}；今天已用 {} / {} 个 token");
    Some(tr_fill(en, zh, &[&next, &heartbeat["tokens_today"], &heartbeat["tokens_per_day"]]))
}

/// Summarizes the caches that have lookups.
fn caches(caches: &Value) -> Option<String> {
    let line = |(name, cache): (&String, &Value)| {
        let count = |key: &str| cache[key].as_u64().unwrap_or(0);
        let (hits, misses, entries) = (count("hits"), count("misses"), count("entries"));
        let (en, zh) = ("{} {} hits, {} misses, {} kept", "{} 命中 {} 次，未命中 {} 次，现存 {} 条");
        (hits + misses > 0).then(|| tr_fill(en, zh, &[&name, &hits, &misses, &entries]))
    };
    let lines: Vec<_> = caches.as_object()?.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Describes whether a provider's circuit breaker admits calls.
fn circuit_words(row: &Value) -> String {
    match row["circuit_seconds"].as_u64() {
        Some(seconds) => tr_fill("not asked for the next {} s", "{} 秒内不再请求", &[&seconds]),
        None => tr("asked with one call at a time", "正以单个请求试探").to_owned(),
    }
}

fn channel_line(channel: &Value) -> String {
    let mut line = format!("{} {}", text(&channel["name"]), state(&text(&channel["state"])));
    if channel["queued"].as_u64().is_some_and(|queued| queued > 0) {
        line.push_str(&tr_fill(", {} queued", "，排队 {} 条", &[&channel["queued"]]));
    }
    for words in ["error", "note"].into_iter().filter_map(|key| channel[key].as_str()) {
        line.push_str(&format!(": {words}"));
    }
    line
}

/// Formats a process such as `a1b2c3 build, 2m, pid 42, for cli:direct: make all`.
fn process_line(process: &Value) -> String {
    let label = process["label"].as_str().map(|label| format!(" {label}")).unwrap_or_default();
    let age = ago(&process["since"]).map(|age| format!("{}{age}", tr(", ", "，"))).unwrap_or_default();
    let detached = if process["detached"] == true { tr(", detached", "，脱离网关运行") } else { "" };
    let [id, command] = ["id", "command"].map(|key| text(&process[key]));
    let session = render::session_key(&process["session"]);
    let (en, zh) = ("{}{}{}, pid {}{}, for {}: {}", "{}{}{}，进程 {}{}，会话 {}：{}");
    tr_fill(en, zh, &[&id, &label, &age, &process["pid"], &detached, &session, &command])
}

/// Formats the age of a time.
fn ago(time: &Value) -> Option<String> {
    let then: Timestamp = time.as_str()?.parse().ok()?;
    Some(format_age(then.as_millisecond(), Timestamp::now().as_millisecond()))
}

/// Describes the last failure of a provider.
fn last_failure(provider: &Value, error: &str) -> String {
    tr_fill("{} failed the last time: {}", "{} 上一次失败：{}", &[&text(provider), &error])
}

/// Writes the services, and below them the models of the probed ones.
pub fn models(found: &Value, mut out: impl Write) -> io::Result<()> {
    let providers = || render::items(&found["providers"]).iter();
    let model = &found["model"];
    let head = match (found["takes"].as_str(), found["error"].as_str()) {
        (Some(takes), _) => tr_fill("agent.model = {}, which is {}", "agent.model = {}，即 {}", &[model, &takes]),
        (None, error) => {
            tr_fill("agent.model = {}: {}", "agent.model = {}：{}", &[model, &translate(error.unwrap_or_default())])
        }
    };
    writeln!(out, "{head}\n")?;
    let rows: Value = providers()
        .map(|row| {
            let mark = if row["in_use"] == true { "*" } else { "" };
            json!({
                "mark": mark,
                "name": row["name"],
                "needs": needs(row),
                "model": row["model"],
                "context": row["context_tokens"].as_u64().map(tokens),
                "price": price(&row["price"]),
            })
        })
        .collect();
    render::table(&rows, COLUMNS, "", &mut out)?;
    for (model, limit) in found["stated_contexts"].as_object().into_iter().flatten() {
        let en = "{} holds {} tokens, as its service said when it refused more";
        let zh = "{} 最多容纳 {} 个 token：服务拒绝更长的请求时这样说";
        writeln!(out, "\n{}", tr_fill(en, zh, &[model, limit]))?;
    }
    if let Some(lack) = found["lack"].as_str() {
        writeln!(out, "\n{}", translate(lack))?;
    }
    let legend = tr(
        "* is what agent.model means. A service needs a key alone: in its variable, or under [providers.NAME]",
        "* 是 agent.model 选用的服务。服务只需要一个密钥：放在它的环境变量里，或写在 [providers.名称] 下",
    );
    writeln!(out, "\n{legend}")?;
    providers().try_for_each(|row| provider_notes(row, &mut out))
}

/// Writes the faults and the models of a service.
fn provider_notes(row: &Value, mut out: impl Write) -> io::Result<()> {
    let name = text(&row["name"]);
    let [error, failure, answers, call_error, circuit] =
        ["error", "last_failure", "answers", "call_error", "circuit"].map(|key| row[key].as_str());
    let call_error = call_error.filter(|_| call_error != error);
    let circuit = circuit.filter(|state| *state != "closed").map(|_| circuit_words(row));
    let notes = [
        error.map(|error| tr_fill("{}: {}", "{}：{}", &[&name, &error])),
        failure.map(|failure| last_failure(&row["name"], failure)),
        answers.map(|model| tr_fill("{} answers as {}", "{} 以 {} 响应", &[&name, &model])),
        call_error.map(|error| tr_fill("{} does not answer: {}", "{} 没有响应：{}", &[&name, &error])),
        circuit.map(|state| tr_fill("{} fails again and again: {}", "{} 连续失败：{}", &[&name, &state])),
    ];
    for note in notes.iter().flatten() {
        writeln!(out, "\n{note}")?;
    }
    let Some(models) = row["models"].as_array() else { return Ok(()) };
    writeln!(out, "\n{}", tr_fill("{} lists {} models", "{} 列出 {} 个模型", &[&name, &models.len()]))?;
    for model in models.iter().take(NAMES) {
        writeln!(out, "  {name}/{}", text(model))?;
    }
    match models.len().checked_sub(NAMES) {
        None | Some(0) => Ok(()),
        Some(more) => {
            let (en, zh) = ("  and {} more; --json has them all", "  还有 {} 个；用 --json 查看全部");
            writeln!(out, "{}", tr_fill(en, zh, &[&more]))
        }
    }
}

/// Describes the source of a provider's key, or what the provider needs.
fn needs(row: &Value) -> String {
    match (row["key_from"].as_str(), row["configured"] == true, row["needs_key"] == true) {
        (Some(from), ..) if from.contains('.') => tr("in the configuration", "在配置中").to_owned(),
        (Some(variable), ..) => tr_fill("{} is set", "已设置 {}", &[&variable]),
        (None, true, _) => tr("configured", "已配置").to_owned(),
        (None, _, true) => tr_fill("needs {}", "需要 {}", &[&text(&row["key_variables"][0])]),
        _ if row["name"] == "offline" => tr("built in", "内置").to_owned(),
        _ => tr("a server on this machine", "本机上的服务").to_owned(),
    }
}

/// Formats a number of tokens such as `1M` or `131k`.
fn tokens(count: u64) -> String {
    match count {
        1_000_000.. => format!("{}M", (count as f64 / 10_000.0).floor() / 100.0),
        1_000.. => format!("{}k", count / 1_000),
        _ => count.to_string(),
    }
}

/// Formats a price such as `1.25 in, 10 out, 0.125 cached USD`; `None` if it is unknown.
fn price(price: &Value) -> Option<String> {
    let (input, output) = (price["input"].as_f64()?, price["output"].as_f64()?);
    let cached = price["cached"].as_f64().map(|cached| tr_fill(", {} cached", "，缓存 {}", &[&cached]));
    let (cached, currency) = (cached.unwrap_or_default(), text(&price["currency"]));
    Some(tr_fill("{} in, {} out{} {}", "输入 {}，输出 {}{} {}", &[&input, &output, &cached, &currency]))
}
