use super::describe;
use super::recurrence::describe_recurrence;

#[test]
fn an_invitation_is_described() {
    let text = "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VTIMEZONE\r\nTZID:Asia/Shanghai\r\nBEGIN:STANDARD\r\nDTSTART:19700101T000000\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n\
        BEGIN:VEVENT\r\nUID:1\r\nSEQUENCE:0\r\nDTSTART;TZID=Asia/Shanghai:20260303T100000\r\nDTEND;TZID=Asia/Shanghai:20260303T113000\r\n\
        RRULE:FREQ=WEEKLY;BYDAY=TU,TH;UNTIL=20260601T000000Z\r\nSUMMARY:产品周会\\, Q\r\n 2\r\nLOCATION:Room 5\r\n\
        ORGANIZER;CN=\"Zhang; San\":mailto:zhang@x.org\r\nATTENDEE;CN=Ann;PARTSTAT=ACCEPTED:MAILTO:ann@x.org\r\nATTENDEE:mailto:bob@x.org\r\n\
        DESCRIPTION:Bring\\nnumbers\r\nBEGIN:VALARM\r\nDESCRIPTION:no\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
    let expected = "Invitation: 产品周会, Q2\n\
        When: 2026-03-03 (Tuesday) 10:00–11:30 (Asia/Shanghai, UTC+08)\n\
        Repeats: every week on Tuesday and Thursday, until 2026-06-01 (Monday) 00:00\n\
        Where: Room 5\nOrganiser: Zhang; San <zhang@x.org>\nInvited: Ann <ann@x.org> (accepted), bob@x.org\nNotes: Bring\nnumbers";
    assert_eq!(describe(text).as_deref(), Some(expected));
}

#[test]
fn times_and_methods_are_described() {
    let table = [
        (
            "METHOD:CANCEL",
            "DTSTART:20260303T100000Z\nDURATION:PT1H",
            "Cancelled: x\nWhen: 2026-03-03 (Tuesday) 10:00, for 1H (UTC)",
        ),
        (
            "METHOD:REQUEST",
            "SEQUENCE:2\nDTSTART;VALUE=DATE:20260303\nDTEND;VALUE=DATE:20260304",
            "Invitation, changed: x\nWhen: 2026-03-03 (Tuesday), all day",
        ),
        (
            "X:1",
            "DTSTART;VALUE=DATE:20260303\nDTEND;VALUE=DATE:20260306",
            "Event: x\nWhen: 2026-03-03 (Tuesday) to 2026-03-05, all day",
        ),
        (
            "METHOD:REPLY",
            "DTSTART;TZID=China Standard Time:20260303T235959\nDTEND:20260304T003000",
            "Answer to an invitation: x\nWhen: 2026-03-03 (Tuesday) 23:59 to 2026-03-04 (Wednesday) 00:30 (China Standard Time)",
        ),
        ("X:1", "DTSTART:99999999T999999", "Event: x\nWhen: 99999999T999999"),
        ("X:1", "STATUS:CANCELLED", "Cancelled: x"),
    ];
    for (method, lines, expected) in table {
        let text = format!("BEGIN:VCALENDAR\n{method}\nBEGIN:VEVENT\nSUMMARY:x\n{lines}\nEND:VEVENT\nEND:VCALENDAR");
        assert_eq!(describe(&text).as_deref(), Some(expected));
    }
    assert_eq!(describe("BEGIN:VCALENDAR\nEND:VCALENDAR"), None);
    assert_eq!(describe("no calendar"), None);
    let many = "BEGIN:VEVENT\n".repeat(10_000) + &"ATTENDEE:mailto:a@b\n".repeat(10_000);
    assert!(describe(&many).is_some_and(|text| text.len() < 5_000));
}

#[test]
fn recurrence_rules_are_described() {
    let table = [
        ("FREQ=DAILY", "every day"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;WKST=SU", "every 2 weeks on Monday"),
        ("FREQ=MONTHLY;BYDAY=-1FR;COUNT=6", "every month on the last Friday, 6 times"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,15", "every month on day 1 and 15"),
        ("FREQ=YEARLY;BYSETPOS=2", "by the rule FREQ=YEARLY;BYSETPOS=2"),
        ("nonsense", "by the rule nonsense"),
    ];
    for (rule, expected) in table {
        assert_eq!(describe_recurrence(rule), expected);
    }
}
