//! Messages stay searchable wherever the process dies during indexing.

use rusqlite::Connection;

use crate::support::gateway::Message;
use crate::support::{Gateway, Model, Reply, Setup, until};

/// Returns the numbers of messages, of searchable ones, and of known words.
fn index_counts(gateway: &Gateway) -> (i64, i64, i64) {
    let store = Connection::open(gateway.database()).unwrap();
    let count = |sql: &str| store.query_row(sql, [], |row| row.get(0)).unwrap();
    (
        count("SELECT count(*) FROM messages WHERE role IN ('user', 'assistant')"),
        count("SELECT count(*) FROM indexed_messages"),
        count("SELECT count(*) FROM message_words_docsize"),
    )
}

/// Counts the messages that contain a term.
fn messages_with_term(gateway: &Gateway, term: &str) -> i64 {
    let store = Connection::open(gateway.database()).unwrap();
    let sql = "SELECT count(*) FROM message_words JOIN indexed_messages ON id = message_words.rowid WHERE message_words MATCH ?";
    store.query_row(sql, [format!("\"{term}\"")], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_kill_during_indexing_leaves_no_gaps_or_duplicates() {
    let model = Model::start().await;
    model.script(|_| Some(Reply::text("the heron is noted")));
    let mut gateway = Gateway::new(Setup::scripted(&model));
    for round in 1..=2 {
        let message = |chat: &str| {
            Message::new(&format!("remember flamingo{round} please")).chat(chat).id(&format!("{round}{chat}"))
        };
        gateway.crash_at("messages_indexed").up().await;
        for chat in ["a", "b"] {
            // The process may die at any message; then the sender repeats it.
            let _ = gateway.try_post("in", "", &message(chat)).await;
        }
        gateway.wait_crash().await;
        gateway.recover().await;
        for chat in ["a", "b"] {
            gateway.post("in", "?wait=30", &message(chat)).await;
        }
        until("everything to be found", async || {
            let (messages, indexed, words) = index_counts(&gateway);
            (messages == round * 4 && indexed == messages && words == indexed).then_some(())
        })
        .await;
        gateway.stop().await;
    }
    assert_eq!(
        (
            messages_with_term(&gateway, "flamingo1"),
            messages_with_term(&gateway, "flamingo2"),
            messages_with_term(&gateway, "heron")
        ),
        (2, 2, 4)
    );
    assert_eq!(messages_with_term(&gateway, "runtim"), 0, "what the gateway adds is not found");
}

/// Without a gateway, no process runs between the turn and the search.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_a_gateway_is_found_by_the_next_command() {
    let gateway = Gateway::new(Setup::new());
    for (word, number) in [("elephant", 1), ("flamingo", 2)] {
        let ran = gateway.run(&["agent", "-m", &format!("the purple {word} sings")]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for command in ["sessions", "memory"] {
            let hits = gateway.json(&[command, "search", word]).await;
            assert!(hits.to_string().contains(word), "{command}, turn {number}: {hits}");
        }
    }
}
