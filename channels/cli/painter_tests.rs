use serde_json::{Value, json};

use super::*;

const DUMB: TerminalStyle = TerminalStyle { live: true, colour: false, cursor: false, columns: Some(60) };
const BARE: TerminalStyle = TerminalStyle { cursor: true, ..DUMB };
const FULL: TerminalStyle = TerminalStyle { colour: true, ..BARE };

fn text(delta: &str) -> TurnEvent {
    TurnEvent::Text { delta: delta.into() }
}

fn call(arguments: Option<Value>) -> TurnEvent {
    call_of("1", arguments)
}

fn call_of(id: &str, arguments: Option<Value>) -> TurnEvent {
    TurnEvent::ToolCall { id: id.into(), name: "read_file".into(), args_complete: arguments.is_some(), arguments }
}

fn result(content: &str, success: bool) -> TurnEvent {
    result_of("1", content, success)
}

fn result_of(id: &str, content: &str, success: bool) -> TurnEvent {
    let name = "read_file".into();
    TurnEvent::ToolResult { id: id.into(), name, content: content.into(), success, duration_ms: 0 }
}

fn painter_of(style: TerminalStyle) -> Painter {
    Painter::new(style, Language::En, Thinking::Show)
}

fn draw(style: TerminalStyle, events: &[TurnEvent], reply: &str) -> String {
    let mut painter = painter_of(style);
    let drawn: String = events.iter().map(|event| painter.event(event)).collect();
    drawn + &painter.reply(reply, false)
}

/// Returns what a screen shows after all of `drawn`.
fn seen(drawn: &str) -> String {
    let mut terminal = avt::Terminal::with_scrollback(100, 1, None).unwrap();
    terminal.feed(drawn.replace('\n', "\r\n").as_str());
    let lines: Vec<_> = terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned()).collect();
    lines.join("\n")
}

fn plain(drawn: &str) -> String {
    crate::clean::clean(drawn)
}

#[test]
fn a_reply_is_printed_once_however_it_came() {
    let table: &[(&[TurnEvent], &str, &str)] = &[
        (&[], "Hello", "\nBot> Hello\n"),
        (&[text("Hel"), text("lo")], "Hello", "\nBot> Hello\n"),
        (&[text("Hel")], "Hello", "\nBot> Hello\n"),
        (&[text("Hello")], "Hello\n\nmore", "\nBot> Hello\n\nmore\n"),
        (&[text("Something else")], "Hello", "\nBot> Something else\n\nBot> Hello\n"),
        (
            &[text("Wait."), call(None), call(Some(json!({"path": "a.txt"}))), result("x", true), text("Done.")],
            "Done.",
            "\nBot> Wait.\n● read_file(path=\"a.txt\")\n  └ x\n\nBot> Done.\n",
        ),
        (
            &[text("Hel"), TurnEvent::Restart, text("Hello")],
            "Hello",
            "\nBot> Hel\n(the answer starts again)\n\nBot> Hello\n",
        ),
        (&[TurnEvent::Thinking { delta: "hm".into() }, text("Hello")], "Hello", "thinking: hm\n\nBot> Hello\n"),
        (&[TurnEvent::Error { message: "No model.".into() }], "No model.", "No model.\n"),
        (
            &[text("It begins"), TurnEvent::Error { message: "It begins\n\n(stopped)".into() }],
            "It begins\n\n(stopped)",
            "\nBot> It begins\n(stopped)\n",
        ),
    ];
    for (events, reply, expected) in table {
        assert_eq!(draw(DUMB, events, reply), *expected, "{events:?}");
        assert_eq!(seen(&draw(BARE, events, reply)), *expected, "{events:?}");
    }
}

#[test]
fn markdown_is_drawn_while_it_streams() {
    let answer = "# Plan\nFirst **this**,\n- one\n- two\n\n```sh\nls\n```\n";
    let pieces: Vec<_> = answer.chars().map(|c| text(&c.to_string())).collect();
    let drawn = draw(FULL, &pieces, answer);
    let expected = "\n\x1b[1;32mBot> \x1b[0m\x1b[1;4;36mPlan\x1b[0m\n\nFirst \x1b[1mthis\x1b[0m,\n\n\
        \x1b[33m• \x1b[0mone\n\x1b[33m• \x1b[0mtwo\n\n\x1b[2m  sh\x1b[0m\n  \x1b[36mls\x1b[0m\n";
    assert_eq!(plain(&seen(&drawn)), plain(expected));
    assert_eq!(draw(FULL, &[], answer), expected, "as a whole it looks the same");
    assert_eq!(
        draw(DUMB, &pieces, answer).trim(),
        format!("Bot> {}", answer.trim()),
        "without a cursor it is as written"
    );
}

#[test]
fn a_tool_call_is_one_row_with_a_spinner_until_it_ends() {
    let mut painter = painter_of(BARE);
    painter.begin();
    assert!(painter.is_spinning());
    let drawn = painter.event(&call(None))
        + &painter.event(&call(Some(json!({"path": "a"}))))
        + &painter.tick()
        + &painter.event(&result("one\ntwo\nthree\nfour\nfive", true));
    assert_eq!(drawn.matches('\n').count(), 5, "{drawn:?}");
    let lines = seen(&drawn);
    assert!(
        lines.starts_with("● read_file(path=\"a\")\n  └ one\n    two\n    three\n    … 2 more lines\n"),
        "{lines:?}"
    );
    painter.event(&call(None));
    let ended = seen(&painter.end());
    assert!(ended.starts_with("● read_file(…) (no result)\n") && !painter.is_spinning(), "{ended:?}");
}

#[test]
fn calls_side_by_side_have_one_row_each_and_their_own_results() {
    let path = |path: &str| Some(json!({ "path": path }));
    let (a, b) = (call_of("a", path("a.txt")), call_of("b", path("b.txt")));
    let begun = [call_of("a", None), call_of("b", None), a.clone(), b.clone()];
    let (done_a, done_b) = (result_of("a", "one", true), result_of("b", "two", false));
    let (row_a, row_b) = ("● read_file(path=\"a.txt\")\n  └ one\n", "● read_file(path=\"b.txt\")\n  └ two\n");
    let first_a = "● read_file(path=\"a.txt\")\n";
    for (events, in_order, on_dumb) in [
        ([&begun[..], &[done_a.clone(), done_b.clone()]].concat(), [row_a, row_b].concat(), [row_a, row_b].concat()),
        // The call is reported again when it begins.
        (
            [&begun[..], &[a, done_a.clone(), b, done_b.clone()]].concat(),
            [row_a, row_b].concat(),
            [row_a, row_b].concat(),
        ),
        // The second call ends first. A screen that cannot redraw rows names the first call again.
        ([&begun[..], &[done_b, done_a]].concat(), [row_b, row_a].concat(), [first_a, row_b, row_a].concat()),
    ] {
        let reply = "\nBot> Done.\n";
        assert_eq!(seen(&draw(BARE, &events, "Done.")), in_order + reply, "{events:?}");
        assert_eq!(draw(DUMB, &events, "Done."), on_dumb + reply, "{events:?}");
    }
}

#[test]
fn arguments_that_are_pending_none_and_no_json_look_different() {
    for (arguments, shown) in [
        (None, "read_file(…)"),
        (Some(json!({})), "read_file()"),
        (Some(json!("{\"path\": \"a")), "read_file({\"path\": \"a)"),
    ] {
        let mut painter = painter_of(BARE);
        let drawn = seen(&painter.event(&call(arguments)));
        assert!(drawn.ends_with(shown), "{drawn:?}");
    }
}

#[test]
fn a_call_of_a_void_response_leaves_no_row() {
    let cut = [text("I look."), call(None), TurnEvent::Restart];
    let again = [call_of("2", None), call_of("2", Some(json!({}))), result_of("2", "x", true), text("Done.")];
    let shown = "\nBot> I look.\n(the answer starts again)\n● read_file()\n  └ x\n\nBot> Done.\n";
    for style in [BARE, DUMB] {
        let mut painter = painter_of(style);
        let drawn: String = cut.iter().chain(&again).map(|event| painter.event(event)).collect();
        let drawn = drawn + &painter.reply("Done.", false) + &painter.end();
        assert_eq!(seen(&drawn).trim_end(), shown.trim_end());
    }
}

#[test]
fn the_spinner_does_not_cover_text() {
    let mut painter = painter_of(BARE);
    painter.begin();
    let drawn = painter.event(&call(None)) + &painter.event(&text("And while it comes"));
    assert!(!painter.is_spinning());
    let drawn = drawn + &painter.tick() + &painter.event(&call(Some(json!({}))));
    assert!(painter.is_spinning() && seen(&drawn).contains("Bot> And while it comes\n"), "{drawn:?}");
}

#[test]
fn a_message_of_another_client_does_not_damage_the_screen() {
    let mut painter = painter_of(BARE);
    let mut message = OutboundMessage::text("cli", "direct", "It **rains**.");
    message.session = "cron:1".into();
    let drawn = painter.event(&text("One two"))
        + &painter.message(&message, &"cli:direct".into())
        + &painter.event(&text(" three"))
        + &painter.reply("One two three", false);
    assert_eq!(seen(&drawn), "\n\nBot (cron:1)> It **rains**.\nBot> One two three\n");
}

#[test]
fn results_are_folded_and_thoughts_are_bounded() {
    let mut painter = painter_of(DUMB);
    assert_eq!(painter.event(&result("", true)), "  └ (no output)\n");
    assert_eq!(painter.event(&result("a\nb\nc\nd\ne", true)), "  └ a\n    b\n    c\n    … 2 more lines\n");
    assert_eq!(painter.event(&result(&"中".repeat(200), true)).chars().filter(|c| *c == '中').count(), 77);
    let thoughts = "x".repeat(MAX_THINKING_CHARS * 2);
    let shown = painter.event(&TurnEvent::Thinking { delta: thoughts.clone() });
    assert!(shown.ends_with("x…") && shown.len() < MAX_THINKING_CHARS + 20);
    assert_eq!(painter.event(&TurnEvent::Thinking { delta: thoughts }), "");
}

#[test]
fn no_line_is_wider_than_a_narrow_screen() {
    let style = TerminalStyle { columns: Some(20), ..BARE };
    let wide = "这是一段很长的中文文字，需要换行显示。And a verylongwordthatdoesnotfit 👩‍🚀👩‍🚀👩‍🚀👩‍🚀👩‍🚀👩‍🚀";
    let events = [call(Some(json!({"path": wide}))), result(&format!("{wide}\n{wide}"), false), text(wide)];
    let drawn = draw(style, &events, wide);
    for line in seen(&drawn).lines() {
        assert!(ScreenRow::of(TextStyle::PLAIN, line).width() < 20, "{line:?}");
    }
}

#[test]
fn usage_is_shown_below_a_turn() {
    let done = |cost: Option<&str>| TurnEvent::Done {
        reply: String::new(),
        input_tokens: 1_234_567,
        output_tokens: 89,
        cost: cost.map(str::to_owned),
    };
    for (cost, words) in [(None, " · 1,234,567 tokens in · 89 out\n"), (Some("0.01 USD"), " 89 out · 0.01 USD\n")] {
        let mut painter = painter_of(DUMB);
        painter.begin();
        painter.event(&done(cost));
        let ended = painter.end();
        assert!(ended.contains(words), "{ended:?}");
    }
    // A failed turn still reports the usage of its model calls.
    let mut painter = painter_of(DUMB);
    painter.begin();
    for (input_tokens, output_tokens, cached_tokens) in [(1_000, 20, 0), (1_100, 5, 900)] {
        painter.event(&TurnEvent::Usage { input_tokens, output_tokens, cached_tokens });
    }
    painter.event(&TurnEvent::Error { message: "No model.".into() });
    let ended = painter.end();
    assert!(ended.contains(" · 2,100 tokens in · 25 out · 900 from the cache\n"), "{ended:?}");
}

#[test]
fn no_text_commands_the_terminal() {
    let wild = "a\x1b[31mb\x1b]0;title\x07c\rd &#27;[2J";
    let events =
        [call(Some(json!({ "x": wild }))), result(wild, true), TurnEvent::Thinking { delta: wild.into() }, text(wild)];
    for style in [DUMB, BARE] {
        let drawn = draw(style, &events, wild).replace("\x1b[J", "");
        let is_ours = |c: char| c == '\n' || style.cursor && c == '\r';
        assert!(!drawn.contains(|c: char| c.is_control() && !is_ours(c)), "{drawn:?}");
    }
    assert_eq!(draw(TerminalStyle::PLAIN, &[], "a\x1b[31mb\n\n"), "ab\n");
    assert_eq!(draw(TerminalStyle { colour: true, ..TerminalStyle::PLAIN }, &[], "**a**"), "\x1b[1ma\x1b[0m\n");
}

#[test]
fn thoughts_are_folded_shown_or_hidden_and_can_be_printed() {
    let think = |delta: &str| TurnEvent::Thinking { delta: delta.into() };
    for (thinking, expected) in [
        (Thinking::Fold, "thought for 0.0s\n\nBot> Hello\n"),
        (Thinking::Show, "thinking: hm, well\n\nBot> Hello\n"),
        (Thinking::Hide, "\nBot> Hello\n"),
    ] {
        for style in [DUMB, BARE] {
            let mut painter = Painter::new(style, Language::En, thinking);
            painter.begin();
            let drawn = painter.event(&think("hm, ")) + &painter.event(&think("well"));
            assert!(thinking == Thinking::Show || !style.cursor || painter.is_spinning());
            let drawn = drawn + &painter.tick() + &painter.event(&text("Hello")) + &painter.reply("Hello", false);
            assert_eq!(seen(&drawn), expected, "{thinking:?} {style:?}");
            assert_eq!(painter.last_thoughts(), ["hm, well"]);
            painter.begin();
            assert!(painter.last_thoughts()[0].contains("shared no thoughts"));
        }
    }
}

#[test]
fn an_answer_continues_below_a_hint() {
    for style in [DUMB, BARE] {
        let mut painter = painter_of(style);
        let drawn = painter.event(&text("It begins"))
            + &painter.hint("(stopping)")
            + &painter.event(&text(" and goes on"))
            + &painter.event(&TurnEvent::Error { message: "It begins and goes on\n\n(stopped)".into() })
            + &painter.reply("It begins and goes on\n\n(stopped)", false);
        assert_eq!(
            seen(&drawn).replace("\n ", "\n"),
            "\nBot> It begins\n(stopping)\nand goes on\n(stopped)\n",
            "{style:?}"
        );
    }
}
