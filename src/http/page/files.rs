//! Files that the page uploads and shows.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use daoyou_channels::attachment_folder::{AttachmentFolder, IncomingFile};
use daoyou_channels::outgoing::digest_of;
use daoyou_channels::text::truncate;
use daoyou_channels::{Attachment, HttpError, SessionKey, limit_body};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::channel::PAGE_CHANNEL;
use crate::bus::OutboundBody;
use crate::guard::open_beneath_on_any_mount;
use crate::http::access::Principal;
use crate::http::api::response::run_detached;
use crate::http::error::internal;
use crate::http::limits::UPLOAD_LIMIT;
use crate::http::state::{AppState, FileFolders, SharedState};
use crate::store::access::{self, FileUse, PageFileRow};
use crate::store::{Connection, Durability, Store, StoreError, inbox, millis, now_ms, outbox};

/// The maximum size, in bytes, of all files that a `chat` token may upload.
const TOKEN_LIMIT: i64 = 1_000_000_000;
/// The time that an upload waits for the message that names it.
const UNUSED_AGE: Duration = Duration::from_secs(86_400);
/// The longest name, in characters.
const MAX_NAME: usize = 200;
/// The image types that browsers show in the page, detected from the content.
const SHOWN_IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];
/// Prevents a file from running or loading anything.
const FILE_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:";

pub fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/files", limit_body(post(upload), UPLOAD_LIMIT)).route("/api/files/{id}", get(download))
}

#[derive(Deserialize)]
struct UploadParams {
    name: String,
}

async fn upload(
    State(state): SharedState,
    principal: Principal,
    Query(UploadParams { name }): Query<UploadParams>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), HttpError> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME {
        return Err(HttpError::unprocessable(format!("name: 1 to {MAX_NAME} characters")));
    }
    state.bus.check_disk()?;
    // A client that disconnects must not leave a file without its record.
    run_detached(save_upload(state, principal, name, media_type_of(&headers, &body), body)).await
}

async fn save_upload(
    state: Arc<AppState>,
    principal: Principal,
    name: String,
    media_type: String,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), HttpError> {
    let id = daoyou_channels::new_id();
    let (workspace, uploader) = (state.folders.workspace.clone(), principal.token.clone().unwrap_or_default());
    let owner = uploader.clone();
    let saved = tokio::task::spawn_blocking(move || -> io::Result<Option<Attachment>> {
        let folder = AttachmentFolder::open(&workspace, PAGE_CHANNEL)?;
        let session = SessionKey::of_chat(PAGE_CHANNEL, &owner);
        let file = IncomingFile { name, media_type, bytes: body.to_vec() };
        let saved = folder.save(&session, &id.to_string(), &[file], "")?.attachments.pop();
        Ok(saved.map(|saved| Attachment { digest: digest_of(&body), ..saved }))
    });
    let saved = saved.await.map_err(|_| internal())?.map_err(|error| {
        tracing::error!(%error, "an upload could not be saved");
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "file", format!("the file could not be saved: {error}"))
    })?;
    let Some(saved) = saved else { return Err(internal()) };
    let stored = serde_json::to_string(&saved).map_err(|_| internal())?;
    let limit = principal.is_confined().then_some(TOKEN_LIMIT);
    let add = move |connection: &Connection| access::add_file(connection, &id.to_string(), &uploader, &stored, limit);
    let added = state.bus.store().write(Durability::Synced, add).await;
    if !matches!(added, Ok(true)) {
        let (workspace, path) = (state.folders.workspace.clone(), saved.path.clone());
        tokio::task::spawn_blocking(move || remove_upload(&workspace, &path)).await.map_err(|_| internal())?;
    }
    if !added? {
        let message = format!(
            "the files of this token would have more than {TOKEN_LIMIT} bytes together; the owner can delete some in the \
             folder {PAGE_CHANNEL} of the workspace, which counts from the next day on"
        );
        return Err(HttpError::new(StatusCode::INSUFFICIENT_STORAGE, "uploads_full", message));
    }
    let Attachment { name, media_type, size, .. } = saved;
    Ok((StatusCode::CREATED, Json(json!({ "id": id, "name": name, "size": size, "mime": media_type }))))
}

/// Returns the media type that the content shows, or else the one that the client gave.
fn media_type_of(headers: &HeaderMap, bytes: &[u8]) -> String {
    let shown = infer::get(bytes).map(|kind| kind.mime_type().to_owned());
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let is_type = |text: &String| {
        let good = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+/".contains(c);
        text.len() <= 100 && text.matches('/').count() == 1 && text.chars().all(good)
    };
    shown.or(given.filter(is_type)).unwrap_or_else(|| "application/octet-stream".to_owned())
}

/// Deletes an upload that has no record. It blocks.
fn remove_upload(workspace: &FilePath, path: &str) {
    let remove = |path: &FilePath| {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let folder = open_in_workspace(workspace, folder, OFlags::DIRECTORY)?;
        Dir::from_std_file(folder).remove_file(name)
    };
    if let Err(error) = remove(FilePath::new(path))
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path, %error, "an upload could not be deleted");
    }
}

/// Deletes uploads that no message has named within a day, and removes the records of files that the owner has deleted.
///
/// # Errors
/// The store cannot be read or written.
pub async fn sweep_uploads(store: &Store, workspace: &FilePath) -> Result<(), StoreError> {
    let before = now_ms() - millis(UNUSED_AGE);
    let rows = store.read(access::files).await?;
    let folder = workspace.to_owned();
    let find_gone = move || -> io::Result<Vec<PageFileRow>> {
        // If the workspace is missing, for example because it is on another disk, nothing is known about its files.
        let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
        Ok(rows.into_iter().filter(|row| is_gone(&folder, row, before)).collect())
    };
    let found = tokio::task::spawn_blocking(find_gone).await.map_err(|error| StoreError::Row(error.to_string()))?;
    let gone = match found {
        Ok(gone) => gone,
        Err(error) => {
            tracing::warn!(%error, "the workspace cannot be opened; no upload is deleted");
            return Ok(());
        }
    };
    let mut removed = 0_usize;
    for row in gone {
        let (folder, unused) = (workspace.to_owned(), row.clone());
        if store.write(Durability::Logged, move |connection| access::remove_file(connection, &unused)).await? {
            removed += 1;
            let path = path_of(&row);
            let remove = move || path.map(|path| remove_upload(&folder, &path));
            tokio::task::spawn_blocking(remove).await.map_err(|error| StoreError::Row(error.to_string()))?;
        }
    }
    if removed > 0 {
        tracing::info!(removed, "uploads that nothing needs are deleted");
    }
    Ok(())
}

/// Returns true if an upload is unused or missing: no message has named it in time, or its file was deleted.
fn is_gone(workspace: &Dir, row: &PageFileRow, before: i64) -> bool {
    let is_missing =
        |path: String| workspace.symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    row.at < before && (!row.is_used || path_of(row).is_some_and(is_missing))
}

fn path_of(row: &PageFileRow) -> Option<String> {
    serde_json::from_str::<Attachment>(&row.attachment).ok().map(|attachment| attachment.path)
}

/// The uploads of a message. They are marked as used before the message is accepted: after a crash between both, a file of an
/// accepted message must not count as unused.
#[derive(Default)]
pub struct MessageUploads {
    pub attachments: Vec<Attachment>,
    uses: Vec<FileUse>,
}

impl MessageUploads {
    /// Marks the uploads of a message that was refused as unused again, so that they are deleted in time.
    pub async fn release(self, store: &Store) {
        if self.uses.is_empty() {
            return;
        }
        // The latest mark first, because a message may name a file twice.
        let undo =
            move |connection: &Connection| self.uses.iter().rev().try_for_each(|one| access::undo_use(connection, one));
        if let Err(error) = store.write(Durability::Logged, undo).await {
            tracing::warn!(%error, "the uploads of a refused message stay marked as used");
        }
    }
}

/// Returns the files for a message, which are then kept: uploads, and files of messages on the page that are sent again.
///
/// # Errors
/// 404 if the client has no such file.
pub async fn uploads_of(state: &AppState, principal: &Principal, ids: &[String]) -> Result<MessageUploads, HttpError> {
    if ids.is_empty() {
        return Ok(MessageUploads::default());
    }
    let (principal, ids) = (principal.clone(), ids.to_vec());
    let find = move |connection: &Connection| use_uploads(connection, &principal, &ids);
    let found = state.bus.store().write(Durability::Logged, find).await?;
    found.map_err(|id| HttpError::not_found(format!("there is no file {:?} to send", truncate(&id, 100))))
}

/// Returns these files and marks all uploads among them as used. If the client does not have one of them, marks none, so
/// that the others are deleted in time; the error is its id.
fn use_uploads(
    connection: &Connection,
    principal: &Principal,
    ids: &[String],
) -> Result<Result<MessageUploads, String>, StoreError> {
    let mut uploads = MessageUploads::default();
    let mut new = Vec::new();
    for text in ids {
        let id = FileId::parse(text);
        let attachment = id.as_ref().map(|id| id.find_to_send(connection, principal)).transpose()?.flatten();
        let Some(attachment) = attachment else { return Ok(Err(text.clone())) };
        uploads.attachments.push(attachment);
        if let Some(FileId::Upload(id)) = id {
            new.push(id);
        }
    }
    for id in new {
        uploads.uses.push(access::use_file(connection, &id.to_string())?);
    }
    Ok(Ok(uploads))
}

/// Finds an upload that the client may use.
fn find_upload(connection: &Connection, principal: &Principal, id: Uuid) -> Result<Option<Attachment>, StoreError> {
    let row = access::find_file(connection, &id.to_string())?;
    let row = row.filter(|(uploader, _)| {
        !principal.is_confined() || principal.token.as_deref().is_some_and(|name| name == uploader)
    });
    Ok(row.map(|(_, attachment)| serde_json::from_str(&attachment)).transpose()?)
}

/// The id of a file: an upload, or a file of a message.
enum FileId {
    Upload(Uuid),
    /// Written as `in.MESSAGE.NUMBER` and `out.MESSAGE.NUMBER`.
    Inbound(Uuid, usize),
    Outbound(Uuid, usize),
}

impl FileId {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(id) = text.parse() {
            return Some(Self::Upload(id));
        }
        let (kind, rest) = text.split_once('.')?;
        let (id, number) = rest.split_once('.')?;
        let (id, number) = (id.parse().ok()?, number.parse().ok()?);
        match kind {
            "in" => Some(Self::Inbound(id, number)),
            "out" => Some(Self::Outbound(id, number)),
            _ => None,
        }
    }

    /// Finds the file if the client may send it. A file that came by another channel counts as content of others, which a message
    /// of the owner must not hide.
    fn find_to_send(&self, connection: &Connection, principal: &Principal) -> Result<Option<Attachment>, StoreError> {
        match self {
            Self::Inbound(id, _)
                if inbox::find(connection, *id)?.is_none_or(|message| message.channel != PAGE_CHANNEL) =>
            {
                Ok(None)
            }
            Self::Outbound(..) => Ok(None),
            Self::Upload(_) | Self::Inbound(..) => self.find(connection, principal),
        }
    }

    /// Finds the file if the client may see it.
    fn find(&self, connection: &Connection, principal: &Principal) -> Result<Option<Attachment>, StoreError> {
        Ok(match self {
            Self::Upload(id) => find_upload(connection, principal, *id)?,
            Self::Inbound(id, number) => {
                let row = inbox::find(connection, *id)?.filter(|row| principal.may_use(&row.session));
                let files = row.map(|row| serde_json::from_str::<Vec<Attachment>>(&row.attachments)).transpose()?;
                files.and_then(|files| files.into_iter().nth(*number))
            }
            Self::Outbound(id, number) => {
                let Some(row) = outbox::find(connection, *id)? else { return Ok(None) };
                let own = format!("{}:{}", row.channel, row.chat_id);
                let body: OutboundBody = serde_json::from_str(&row.body)?;
                let may_use = !principal.is_confined() || (row.channel == PAGE_CHANNEL && principal.may_use(&own));
                if may_use { body.attachments.into_iter().nth(*number) } else { None }
            }
        })
    }
}

async fn download(
    State(state): SharedState,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let missing = || HttpError::not_found(format!("there is no file {:?}", truncate(&id, 100)));
    let file = FileId::parse(&id).ok_or_else(missing)?;
    let found = state.bus.store().read(move |connection| file.find(connection, &principal)).await?;
    let attachment = found.ok_or_else(missing)?;
    let (name, folders) = (attachment.name.clone(), state.folders.clone());
    let read =
        tokio::task::spawn_blocking(move || read_attachment(&folders, &attachment)).await.map_err(|_| internal())?;
    let bytes = read.map_err(|error| {
        let message = format!("{:?} cannot be read any more: {error}", truncate(&name, 200));
        HttpError::new(StatusCode::GONE, "gone", message)
    })?;
    let image = infer::get(&bytes).map(|kind| kind.mime_type()).filter(|kind| SHOWN_IMAGES.contains(kind));
    let form = if image.is_some() { "inline" } else { "attachment" };
    let disposition = format!("{form}; filename*=UTF-8''{}", utf8_percent_encode(&name, NON_ALPHANUMERIC));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(image.unwrap_or("application/octet-stream"))),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment")),
        ),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(FILE_POLICY)),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600")),
    ];
    Ok((headers, bytes).into_response())
}

/// Reads a file of a message. It blocks.
fn read_attachment(folders: &FileFolders, attachment: &Attachment) -> io::Result<Vec<u8>> {
    // A file that came by another channel, or an upload from before digests were recorded.
    if attachment.digest.is_empty() {
        return read_below(&folders.workspace, &attachment.path);
    }
    // If the page does not show the message, the copy is deleted some time after its delivery.
    let copy = folders.outgoing.load(attachment, UPLOAD_LIMIT as u64);
    copy.or_else(|_| {
        let bytes = read_below(&folders.workspace, &attachment.path)?;
        match digest_of(&bytes) == attachment.digest {
            true => Ok(bytes),
            false => Err(io::Error::new(ErrorKind::InvalidData, "the file was changed after it was sent")),
        }
    })
}

/// Opens a path of the workspace without following links: a command of the agent could lead the gateway into a private folder by one.
fn open_in_workspace(workspace: &FilePath, path: &FilePath, flags: OFlags) -> io::Result<File> {
    let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
    Ok(open_beneath_on_any_mount(&workspace, path, OFlags::RDONLY | flags)?.into())
}

/// Reads a regular file of the workspace that has no second name.
fn read_below(workspace: &FilePath, path: &str) -> io::Result<Vec<u8>> {
    let file = open_in_workspace(workspace, FilePath::new(path), OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file with one name"));
    }
    let mut bytes = Vec::new();
    file.take(UPLOAD_LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > UPLOAD_LIMIT {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {UPLOAD_LIMIT} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::http::access::ClientCredential;
    use crate::query::access::TokenScope;

    #[tokio::test]
    async fn a_message_uses_all_its_uploads_or_none() {
        let (_folder, store) = Store::temporary();
        let [own, other, unknown] = [1, 2, 3].map(Uuid::from_u128);
        let principal = Principal {
            token: Some("phone".to_owned()),
            scope: TokenScope::Chat,
            credential: ClientCredential::ControlSocket,
        };
        let check = move |connection: &Connection| {
            let stored = serde_json::to_string(&Attachment::default())?;
            access::add_file(connection, &own.to_string(), "phone", &stored, None)?;
            access::add_file(connection, &other.to_string(), "tablet", &stored, None)?;
            let mut outcomes = Vec::new();
            for ids in [&[own, unknown][..], &[own, other], &[own]] {
                let ids: Vec<_> = ids.iter().map(Uuid::to_string).collect();
                let found = use_uploads(connection, &principal, &ids)?.map(|uploads| uploads.attachments.len());
                let used = access::files(connection)?.into_iter().filter(|row| row.is_used).count();
                outcomes.push((found, used));
            }
            Ok(outcomes)
        };
        let outcomes = store.write(Durability::Logged, check).await.unwrap();
        assert_eq!(outcomes, [(Err(unknown.to_string()), 0), (Err(other.to_string()), 0), (Ok(1), 1)]);
    }

    #[tokio::test]
    async fn uploads_that_nothing_needs_go_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir_all(workspace.join("page")).unwrap();
        let path = |name: &str| format!("page/{name}");
        for name in ["unused", "used", "deleted", "new"] {
            if name != "deleted" {
                fs::write(workspace.join(path(name)), name).unwrap();
            }
            let attachment = Attachment { name: name.to_owned(), path: path(name), size: 3, ..Attachment::default() };
            let stored = serde_json::to_string(&attachment).unwrap();
            let write = move |connection: &Connection| {
                access::add_file(connection, name, "phone", &stored, None)?;
                if matches!(name, "used" | "deleted") {
                    access::use_file(connection, name)?;
                }
                let age = if name == "new" { 0 } else { 2 * 86_400_000 };
                connection.execute("UPDATE page_files SET at = at - ? WHERE id = ?", (age, name))?;
                Ok(())
            };
            store.write(Durability::Logged, write).await.unwrap();
        }
        sweep_uploads(&store, &folder.path().join("not-there")).await.unwrap();
        assert_eq!(store.read(access::files).await.unwrap().len(), 4, "without the workspace nothing is known");
        sweep_uploads(&store, &workspace).await.unwrap();
        let left: Vec<_> = store.read(access::files).await.unwrap().into_iter().map(|row| row.id).collect();
        assert_eq!(left, ["new", "used"]);
        let exists = |name: &str| workspace.join(path(name)).exists();
        assert_eq!(["unused", "used", "new"].map(exists), [false, true, true]);
        // A link in the path of an upload leads to no other file.
        fs::create_dir(workspace.join("memory")).unwrap();
        fs::write(workspace.join("memory/kept"), "kept").unwrap();
        std::os::unix::fs::symlink("../memory", workspace.join("page/link")).unwrap();
        remove_upload(&workspace, "page/link/kept");
        assert!(workspace.join("memory/kept").exists());
        store.close().await;
    }
}
