//! Edits of texts that a server proposes.

use std::collections::BTreeMap;

use lsp_types::{DocumentChangeOperation, DocumentChanges, OneOf, TextEdit, Url, WorkspaceEdit};
use serde_json::Value;

use super::positions::{PositionEncoding, PositionIndex};

/// The limits of one proposal.
const MAX_FILES: usize = 500;
const MAX_EDITS: usize = 20_000;

/// The proposed edits by file.
pub(super) type ProposedEdits = BTreeMap<Url, Vec<TextEdit>>;

/// Returns the edits of a proposal; empty if the server proposes nothing.
///
/// # Errors
/// The proposal is invalid or too large, or does more than edit texts.
pub(super) fn file_edits(answer: Value) -> Result<ProposedEdits, String> {
    let read = serde_json::from_value::<Option<WorkspaceEdit>>(answer);
    let edit = read.map_err(|_| "the server returned an invalid edit".to_owned())?.unwrap_or_default();
    let documents: Vec<(Url, Vec<TextEdit>)> = match edit.document_changes {
        None => edit.changes.unwrap_or_default().into_iter().collect(),
        Some(DocumentChanges::Edits(edits)) => edits.into_iter().map(file_of).collect(),
        Some(DocumentChanges::Operations(operations)) => {
            let each = operations.into_iter().map(|operation| match operation {
                DocumentChangeOperation::Edit(edit) => Ok(file_of(edit)),
                DocumentChangeOperation::Op(_) => {
                    Err("the server would also create, move or delete files, which is not done".to_owned())
                }
            });
            each.collect::<Result<Vec<_>, _>>()?
        }
    };
    let mut files = ProposedEdits::new();
    for (url, edits) in documents {
        files.entry(url).or_default().extend(edits);
        if files.len() > MAX_FILES {
            return Err(format!("the server would change more than {MAX_FILES} files"));
        }
    }
    files.retain(|_, edits| !edits.is_empty());
    if files.values().map(Vec::len).sum::<usize>() > MAX_EDITS {
        return Err(format!("the server would make more than {MAX_EDITS} changes"));
    }
    Ok(files)
}

fn file_of(edit: lsp_types::TextDocumentEdit) -> (Url, Vec<TextEdit>) {
    let edits = edit.edits.into_iter().map(|edit| match edit {
        OneOf::Left(edit) => edit,
        OneOf::Right(annotated) => annotated.text_edit,
    });
    (edit.text_document.uri, edits.collect())
}

/// Applies edits to a text. The positions of all edits refer to the original text.
///
/// # Errors
/// An edit does not fit the text, or two edits overlap.
pub(super) fn apply_edits(text: &str, edits: &[TextEdit], encoding: PositionEncoding) -> Result<String, String> {
    let index = PositionIndex::new(text, encoding);
    let mut places = Vec::new();
    for edit in edits {
        let (start, end) = (index.offset(edit.range.start)?, index.offset(edit.range.end)?);
        if start > end {
            return Err("an edit ends before it starts".to_owned());
        }
        places.push((start, end, edit.new_text.as_str()));
    }
    // The sort is stable, so insertions at the same position keep their order.
    places.sort_by_key(|(start, end, _)| (*start, *end));
    let (mut new, mut done) = (String::with_capacity(text.len()), 0);
    for (start, end, insertion) in places {
        if start < done {
            return Err("two edits overlap".to_owned());
        }
        new.push_str(&text[done..start]);
        new.push_str(insertion);
        done = end;
    }
    new.push_str(&text[done..]);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edit(from: (u32, u32), to: (u32, u32), text: &str) -> Value {
        let place = |(line, character): (u32, u32)| json!({"line": line, "character": character});
        json!({"range": {"start": place(from), "end": place(to)}, "newText": text})
    }

    #[test]
    fn edits_are_applied_to_the_text_as_it_was() {
        let text = "道 = old\nold(😀, old)\n";
        for (edits, expected) in [
            (
                json!([edit((1, 8), (1, 11), "n"), edit((0, 4), (0, 7), "longer"), edit((1, 0), (1, 3), "n")]),
                Ok("道 = longer\nn(😀, n)\n"),
            ),
            (json!([edit((0, 0), (0, 0), "a"), edit((0, 0), (0, 0), "b")]), Ok("ab道 = old\nold(😀, old)\n")),
            (json!([edit((0, 1), (1, 3), "")]), Ok("道(😀, old)\n")),
            (json!([edit((2, 0), (2, 0), "end")]), Ok("道 = old\nold(😀, old)\nend")),
            (json!([]), Ok(text)),
            (json!([edit((0, 0), (0, 4), "x"), edit((0, 3), (0, 5), "y")]), Err("overlap")),
            (json!([edit((0, 4), (0, 1), "x")]), Err("ends before")),
            (json!([edit((7, 0), (7, 1), "x")]), Err("line 8 does not exist")),
            (json!([edit((1, 5), (1, 5), "x")]), Err("within a character")),
        ] {
            let edits: Vec<TextEdit> = serde_json::from_value(edits).unwrap();
            match (apply_edits(text, &edits, PositionEncoding::Utf16), expected) {
                (Ok(new), Ok(expected)) => assert_eq!(new, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn proposals_of_both_forms_are_read() {
        let one = edit((0, 0), (0, 1), "x");
        let document = |path: &str| json!({"textDocument": {"uri": path, "version": null}, "edits": [one]});
        let many: serde_json::Map<_, _> = (0..501).map(|n| (format!("file:///{n}"), json!([one]))).collect();
        for (answer, expected) in [
            (json!(null), Ok(0)),
            (json!({}), Ok(0)),
            (json!({"changes": {"file:///a": [one], "file:///b": []}}), Ok(1)),
            (json!({"documentChanges": [document("file:///a"), document("file:///b"), document("file:///a")]}), Ok(2)),
            (
                json!({"documentChanges": [document("file:///a"), {"kind": "delete", "uri": "file:///b"}]}),
                Err("move or delete"),
            ),
            (json!({"changes": many}), Err("more than 500 files")),
            (json!({"changes": {"file:///a": vec![one.clone(); 20_001]}}), Err("more than 20000 changes")),
            (json!("x"), Err("an invalid edit")),
            (json!({"changes": {"file:///a": [{}]}}), Err("an invalid edit")),
        ] {
            match (file_edits(answer), expected) {
                (Ok(files), Ok(expected)) => assert_eq!(files.len(), expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }
}
