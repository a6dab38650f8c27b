//! Authenticates requests, and creates and ends logins of the page.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use daoyou_channels::settings::Secret;
use daoyou_channels::{ClientAddr, HttpError};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::time::Instant;

use super::login_codes::{LoginCode, LoginCodes};
use super::principal::{ClientCredential, Principal};
use super::token::TokenSource;
use crate::guard::FileVersion;
use crate::home::Home;
use crate::http::error::internal;
use crate::http::login_attempts::LoginAttempts;
use crate::query::access::{TokenScope, decode_secret, encode_secret, is_named_token, new_secret, secret_hash};
use crate::store::access::{self, AccessTokenRow, PageLoginRow, SecretHash};
use crate::store::{Connection, Durability, Store};

/// The longest token that is accepted for a check, in bytes.
const MAX_TOKEN: usize = 4_096;

/// Checks the tokens and cookies of requests.
pub struct Authenticator {
    token: TokenSource,
    attempts: LoginAttempts,
    store: Store,
    codes: Mutex<LoginCodes>,
    /// Notifies open streams that a token or a login has ended.
    ended: watch::Sender<()>,
    /// The name of the cookie. It contains the port, because all ports of a host share their cookies.
    cookie: String,
}

/// A login that was just created.
pub struct NewLogin {
    /// The id of the login, which is the value of the cookie.
    id: String,
}

impl Authenticator {
    /// Creates an authenticator with the `configured` token of the gateway, or the current content of the home's file. `port` is the
    /// server's.
    pub fn new(configured: Option<Secret>, home: Home, store: Store, port: u16) -> Arc<Self> {
        Arc::new(Self {
            token: TokenSource::new(configured, home),
            attempts: LoginAttempts::default(),
            store,
            codes: Mutex::default(),
            ended: watch::Sender::new(()),
            cookie: format!("daoyou_{port}"),
        })
    }

    /// Authenticates a request by its `Authorization` header, or else by its cookie.
    ///
    /// # Errors
    /// 401 without a token or a login, with a wrong one, or with several; 429 after too many wrong tokens of `client`.
    pub async fn authenticate(&self, client: ClientAddr, headers: &HeaderMap) -> Result<Principal, HttpError> {
        // Another program in front of the gateway might take another one of several.
        if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
            return Err(HttpError::unauthorized("there is more than one Authorization header; send exactly one"));
        }
        // Another scheme is for a proxy in front of the gateway.
        if let Some(token) = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes())) {
            return match self.find_token(token).await? {
                Some(principal) => Ok(principal),
                None => Err(self.refuse(client, token)),
            };
        }
        match self.login_of(headers) {
            Some(id) => self.find_login(id).await?.ok_or_else(|| HttpError::unauthorized("the login has ended")),
            None => Err(HttpError::unauthorized(
                "this needs the token of the gateway, as Authorization: Bearer TOKEN, or a login of the page",
            )),
        }
    }

    /// Returns true if the credential of an earlier authentication is still valid.
    pub async fn is_valid(&self, principal: &Principal) -> bool {
        let found = match &principal.credential {
            ClientCredential::ControlSocket => return true,
            ClientCredential::GatewayToken(hash) => return self.token.matches_hash(hash),
            ClientCredential::Token(hash) => {
                let hash = *hash;
                let find = move |connection: &Connection| access::find_token(connection, &hash);
                self.store.read(find).await.map(|row| row.and_then(|row| named(row, principal.credential.clone())))
            }
            ClientCredential::Login(id) => match self.find_login(*id).await {
                Ok(found) => Ok(found),
                // The next check reads the store again.
                Err(_) => return true,
            },
        };
        found.map_or(true, |found| found.as_ref() == Some(principal))
    }

    /// Makes open streams check at once whether their token or login is still valid, after a token was revoked.
    pub fn recheck_streams(&self) {
        self.ended.send_replace(());
    }

    /// Creates a login with a token.
    ///
    /// # Errors
    /// 401 for a wrong token, 429 after too many.
    pub async fn log_in(&self, client: ClientAddr, token: &str) -> Result<NewLogin, HttpError> {
        let token = token.trim();
        match self.find_token(token.as_bytes()).await? {
            Some(Principal { token: Some(name), credential: ClientCredential::Token(hash), .. }) => {
                self.add_login(Some((name, hash))).await
            }
            Some(_) => self.add_login(None).await,
            None => Err(self.refuse(client, token.as_bytes())),
        }
    }

    /// Returns a new code that logs the owner in once.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_code(&self) -> Result<LoginCode, HttpError> {
        let code = random()?;
        Ok(self.codes.lock().add(code))
    }

    /// Returns the code of the previous call if it is unused and valid for a while, and otherwise a new one. A program that reads the
    /// status every few seconds therefore replaces no code of [`Authenticator::new_code`].
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn shown_code(&self) -> Result<LoginCode, HttpError> {
        let mut codes = self.codes.lock();
        match codes.shown_again() {
            Some(code) => Ok(code),
            None => Ok(codes.show(random()?)),
        }
    }

    /// Creates a login with a one-time code; `None` if the code is not, or no longer, valid.
    ///
    /// # Errors
    /// 429 after too many wrong codes of `client`.
    pub async fn redeem(&self, client: ClientAddr, code: &str) -> Result<Option<NewLogin>, HttpError> {
        let hash = decode_secret(code).map(|code| secret_hash(&code));
        if hash.is_some_and(|hash| self.codes.lock().take(&hash)) {
            return self.add_login(None).await.map(Some);
        }
        let refused = self.refuse(client, code.as_bytes());
        if refused.status == StatusCode::TOO_MANY_REQUESTS { Err(refused) } else { Ok(None) }
    }

    /// Ends the login of a request.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn log_out(&self, principal: &Principal) -> Result<(), HttpError> {
        if let ClientCredential::Login(id) = principal.credential {
            let end = move |connection: &Connection| access::remove_login(connection, &secret_hash(&id));
            self.store.write(Durability::Synced, end).await?;
            self.recheck_streams();
        }
        Ok(())
    }

    /// Returns the header that sets the cookie of a login, or removes it.
    pub fn set_cookie(&self, login: Option<&NewLogin>, is_secure: bool) -> HeaderValue {
        let (value, age) = login.map_or(("", 0), |login| (login.id.as_str(), access::LOGIN_IDLE_MS / 1_000));
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!("{}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}", self.cookie);
        // The cookie contains only letters, digits and punctuation.
        HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static(""))
    }

    /// Finds the principal of a token.
    async fn find_token(&self, token: &[u8]) -> Result<Option<Principal>, HttpError> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Ok(None);
        }
        if self.token.matches(token) {
            let credential = ClientCredential::GatewayToken(secret_hash(token));
            return Ok(Some(Principal { credential, ..Principal::owner() }));
        }
        if !is_named_token(token) {
            return Ok(None);
        }
        let hash = secret_hash(token);
        let row = self.store.read(move |connection| access::find_token(connection, &hash)).await?;
        let Some(row) = row else { return Ok(None) };
        if access::is_use_due(row.used_at, crate::store::now_ms()) {
            let name = row.name.clone();
            self.note_use(move |connection| access::touch_token(connection, &name));
        }
        Ok(named(row, ClientCredential::Token(hash)))
    }

    async fn find_login(&self, id: [u8; 32]) -> Result<Option<Principal>, HttpError> {
        let hash = secret_hash(&id);
        let found = self.store.read(move |connection| access::find_login(connection, &hash)).await?;
        let Some((PageLoginRow { token, token_binding }, is_due)) = found else { return Ok(None) };
        let credential = ClientCredential::Login(id);
        let principal = match token {
            Some(row) => named(row, credential),
            None => {
                let is_current =
                    self.token.login_binding(&id).is_some_and(|current| current.ct_eq(&token_binding).into());
                is_current.then(|| Principal { credential, ..Principal::owner() })
            }
        };
        if is_due && principal.is_some() {
            self.note_use(move |connection| access::touch_login(connection, &hash));
        }
        Ok(principal)
    }

    /// Stores the time of a use in the background.
    fn note_use<F>(&self, write: F)
    where
        F: FnMut(&Connection) -> Result<(), crate::store::StoreError> + Send + 'static,
    {
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.write(Durability::Logged, write).await {
                tracing::warn!(%error, "the use of a token could not be stored");
            }
        });
    }

    /// Adds a login for the token of the gateway, or for a named token with its hash.
    async fn add_login(&self, token: Option<(String, SecretHash)>) -> Result<NewLogin, HttpError> {
        let id = random()?;
        let (token, token_binding) = match token {
            Some((name, hash)) => (Some(name), hash),
            None => (None, self.token.login_binding(&id).ok_or_else(internal)?),
        };
        let add = move |connection: &Connection| {
            access::add_login(connection, &secret_hash(&id), token.as_deref(), &token_binding)
        };
        self.store.write(Durability::Synced, add).await?;
        Ok(NewLogin { id: encode_secret(&id) })
    }

    /// Counts a wrong token or code.
    fn refuse(&self, client: ClientAddr, token: &[u8]) -> HttpError {
        match self.attempts.record_failure(client, token) {
            Ok(()) => HttpError::unauthorized("this is not the token of the gateway"),
            Err(wait) => {
                let message = "this is not the token of the gateway, and too many wrong ones came from your address";
                let error = HttpError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", message);
                HttpError { retry_after: Some(wait), ..error }
            }
        }
    }

    /// Returns the id of the login in the cookies of a request.
    fn login_of(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
        let mut cookies = fields.flat_map(|field| field.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        cookies.find(|(name, _)| *name == self.cookie).and_then(|(_, value)| decode_secret(value))
    }
}

/// The interval at which an open stream checks whether its token or login is still valid, besides the checks after revocations.
const RECHECK: Duration = Duration::from_secs(15);
/// The interval at which an open stream without events checks whether the file of the gateway's token has changed.
const TOKEN_RECHECK: Duration = Duration::from_secs(1);

/// The access of a stream's client. It may end before the stream does.
pub struct StreamAccess {
    auth: Arc<Authenticator>,
    principal: Principal,
    checked: Instant,
    /// The version of the token's file at the last check.
    token: Option<FileVersion>,
    ended: watch::Receiver<()>,
}

impl StreamAccess {
    /// Creates the access of a client that was just admitted.
    pub fn new(auth: Arc<Authenticator>, principal: Principal) -> Self {
        // Marked as changed: the token may have been revoked after the check of the request.
        let mut ended = auth.ended.subscribe();
        ended.mark_changed();
        Self { auth, principal, checked: Instant::now(), token: None, ended }
    }

    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Waits until the next check is due. It may be cancelled.
    pub async fn due(&mut self) {
        loop {
            let next = (self.checked + RECHECK).min(Instant::now() + TOKEN_RECHECK);
            // The authenticator owns the sender, so a closed channel is impossible; it would only add a check.
            if tokio::time::timeout_at(next, self.ended.changed()).await.is_ok() {
                // Whoever called this may be cancelled before the check.
                return self.ended.mark_changed();
            }
            if self.is_due() {
                return;
            }
        }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.checked + RECHECK
            || self.ended.has_changed().unwrap_or(true)
            || self.auth.token.version() != self.token
    }

    /// Returns true if the access is still valid; checks it if a check is due, which it is at once after a token was revoked or
    /// replaced. Called before everything that is sent.
    pub async fn is_still_valid(&mut self) -> bool {
        if !self.is_due() {
            return true;
        }
        self.ended.mark_unchanged();
        self.checked = Instant::now();
        self.token = self.auth.token.version();
        self.auth.is_valid(&self.principal).await
    }
}

/// Returns the principal of a named token; `None` if this program does not know the token's scope.
fn named(row: AccessTokenRow, credential: ClientCredential) -> Option<Principal> {
    let scope = row.scope.parse::<TokenScope>().ok()?;
    Some(Principal { token: Some(row.name), scope, credential })
}

fn random() -> Result<[u8; 32], HttpError> {
    new_secret().map_err(|error| {
        tracing::error!(%error, "no random bytes are available");
        internal()
    })
}

/// Returns the token of `Bearer TOKEN`; the case of the scheme does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::http::access::login_codes::{CODE_LIFETIME, MAX_CODES, MIN_SHOWN};
    use crate::query::access::{TokenChange, apply as change_tokens};

    struct AuthSetup {
        folder: tempfile::TempDir,
        auth: Arc<Authenticator>,
    }

    fn client() -> ClientAddr {
        ClientAddr("192.0.2.7".parse().unwrap())
    }

    impl AuthSetup {
        fn open(configured: Option<&str>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let home = Home::open(Some(folder.path().to_owned())).unwrap();
            let store = Store::open(&home.database()).unwrap();
            let auth = Authenticator::new(configured.map(Secret::new), home, store, 18_790);
            Self { folder, auth }
        }

        async fn status(&self, name: header::HeaderName, value: &str) -> u16 {
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            self.auth.authenticate(client(), &headers).await.map_or_else(|error| error.status.as_u16(), |_| 200)
        }
    }

    #[tokio::test]
    async fn only_the_right_token_is_accepted() {
        let setup = AuthSetup::open(Some("right"));
        for (value, expected) in [
            ("Bearer right", 200),
            ("bearer right", 200),
            ("Bearer wrong", 401),
            ("Bearer righ", 401),
            ("Bearer ", 401),
            ("right", 401),
            ("Basic right", 401),
        ] {
            assert_eq!(setup.status(header::AUTHORIZATION, value).await, expected, "{value:?}");
        }
        for second in ["Bearer right", "Bearer wrong", "Basic x"] {
            let mut headers = HeaderMap::new();
            for value in ["Bearer right", second] {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            let error = setup.auth.authenticate(client(), &headers).await.unwrap_err();
            assert_eq!(error.status, 401, "{second}");
            assert!(error.message.contains("more than one Authorization"), "{}", error.message);
        }
        assert!(setup.auth.authenticate(client(), &HeaderMap::new()).await.is_err());
    }

    #[tokio::test]
    async fn a_changed_token_file_is_used_at_once_and_ends_logins() {
        let setup = AuthSetup::open(None);
        let home = Home::open(Some(setup.folder.path().to_owned())).unwrap();
        let token = home.token().unwrap();
        let old = format!("Bearer {}", token.expose());
        assert_eq!(setup.status(header::AUTHORIZATION, &old).await, 200);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, old.parse().unwrap())]);
        let principal = setup.auth.authenticate(client(), &headers).await.unwrap();
        assert!(setup.auth.is_valid(&principal).await);
        let login = setup.auth.log_in(client(), token.expose()).await.unwrap();
        let cookie = format!("other=1; daoyou_18790={}", login.id);
        assert_eq!(setup.status(header::COOKIE, &cookie).await, 200);
        fs::write(home.token_file(), "another\n").unwrap();
        assert_eq!(setup.status(header::AUTHORIZATION, &old).await, 401);
        assert!(!setup.auth.is_valid(&principal).await, "what it opened before ends");
        assert_eq!(setup.status(header::AUTHORIZATION, "Bearer another").await, 200);
        assert_eq!(setup.status(header::COOKIE, &cookie).await, 401);
        let fresh = setup.folder.path().join("fresh");
        fs::write(&fresh, "renamed\n").unwrap();
        fs::rename(&fresh, home.token_file()).unwrap();
        assert_eq!(setup.status(header::AUTHORIZATION, "Bearer another").await, 401);
        assert_eq!(setup.status(header::AUTHORIZATION, "Bearer renamed").await, 200);
        fs::remove_file(home.token_file()).unwrap();
        assert_eq!(setup.status(header::AUTHORIZATION, "Bearer renamed").await, 401);
    }

    #[tokio::test]
    async fn a_code_logs_in_once_and_for_a_minute() {
        let setup = AuthSetup::open(Some("right"));
        let redeem = async |code: &str| setup.auth.redeem(client(), code).await.map(|login| login.is_some());
        let new_code = || setup.auth.new_code().unwrap().code;
        let code = new_code();
        assert_eq!(redeem(&code).await, Ok(true));
        assert_eq!(redeem(&code).await, Ok(false), "once");
        let code = new_code();
        tokio::time::pause();
        tokio::time::advance(CODE_LIFETIME).await;
        tokio::time::resume();
        assert_eq!(redeem(&code).await, Ok(false), "too late");
        let first = new_code();
        let later: Vec<_> = (0..MAX_CODES).map(|_| new_code()).collect();
        assert_eq!(redeem(&first).await, Ok(false), "replaced by later ones");
        assert_eq!(redeem(&later[MAX_CODES - 1]).await, Ok(true));
        for _ in 0..50 {
            redeem("short").await.ok();
        }
        assert_eq!(redeem("short").await.unwrap_err().status, 429);
    }

    #[tokio::test]
    async fn a_code_that_is_shown_often_replaces_no_other_code() {
        let setup = AuthSetup::open(Some("right"));
        let redeem = async |code: &str| setup.auth.redeem(client(), code).await.map(|login| login.is_some());
        let shown = || setup.auth.shown_code().unwrap();
        let (opened, first) = (setup.auth.new_code().unwrap().code, shown());
        assert_eq!(first.expires_in, CODE_LIFETIME);
        for _ in 0..2 * MAX_CODES {
            assert_eq!(shown().code, first.code);
        }
        assert_eq!(redeem(&opened).await, Ok(true), "the code of `daoyou open` is still valid");
        assert_eq!(redeem(&first.code).await, Ok(true));
        let second = shown();
        assert_ne!(second.code, first.code, "a used code is not shown again");
        tokio::time::pause();
        tokio::time::advance(MIN_SHOWN - Duration::from_secs(1)).await;
        let again = shown();
        assert_eq!(again.code, second.code);
        assert!(again.expires_in >= MIN_SHOWN && again.expires_in < CODE_LIFETIME, "{:?}", again.expires_in);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_ne!(shown().code, second.code, "a code that ends soon is not shown again");
        tokio::time::resume();
        assert_eq!(redeem(&second.code).await, Ok(true), "it is still valid");
    }

    #[tokio::test]
    async fn a_named_token_and_its_logins_end_when_it_is_revoked() {
        let setup = AuthSetup::open(Some("right"));
        let add = TokenChange::Add { name: "phone".to_owned(), scope: "chat".to_owned(), reuse: false };
        let made = change_tokens(&setup.auth.store, add).await.unwrap();
        let token = made["token"].as_str().unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
        let principal = setup.auth.authenticate(client(), &headers).await.unwrap();
        assert_eq!((principal.name(), principal.scope), ("phone", TokenScope::Chat));
        let login = setup.auth.log_in(client(), token).await.unwrap();
        let cookie = format!("daoyou_18790={}", login.id);
        assert_eq!(setup.status(header::COOKIE, &cookie).await, 200);
        assert!(setup.auth.is_valid(&principal).await);
        change_tokens(&setup.auth.store, TokenChange::Revoke("phone".to_owned())).await.unwrap();
        assert_eq!(setup.status(header::COOKIE, &cookie).await, 401);
        assert!(setup.auth.authenticate(client(), &headers).await.is_err());
        assert!(!setup.auth.is_valid(&principal).await);
    }

    #[tokio::test]
    async fn an_open_stream_ends_at_once_when_the_token_of_the_gateway_is_replaced() {
        let setup = AuthSetup::open(None);
        let home = Home::open(Some(setup.folder.path().to_owned())).unwrap();
        let token = home.token().unwrap();
        let bearer =
            HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {}", token.expose()).parse().unwrap())]);
        let login = setup.auth.log_in(client(), token.expose()).await.unwrap();
        let cookie = format!("daoyou_18790={}", login.id);
        let cookie = HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())]);
        let mut streams = Vec::new();
        for headers in [&bearer, &cookie] {
            let principal = setup.auth.authenticate(client(), headers).await.unwrap();
            let mut stream = StreamAccess::new(setup.auth.clone(), principal);
            assert!(stream.is_still_valid().await && stream.is_still_valid().await);
            streams.push(stream);
        }
        let began = Instant::now();
        fs::write(home.token_file(), "another\n").unwrap();
        assert!(!streams[0].is_still_valid().await, "the next event is not sent");
        streams[1].due().await;
        assert!(!streams[1].is_still_valid().await, "a stream without events ends as well");
        assert!(began.elapsed() < RECHECK / 2, "it did not wait for the next check");
    }

    #[tokio::test]
    async fn an_open_stream_ends_at_once_when_its_token_is_revoked() {
        let setup = AuthSetup::open(Some("right"));
        let mut streams = Vec::new();
        for name in ["phone", "tablet"] {
            let add = TokenChange::Add { name: name.to_owned(), scope: "read".to_owned(), reuse: false };
            let made = change_tokens(&setup.auth.store, add).await.unwrap();
            let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer.parse().unwrap())]);
            let principal = setup.auth.authenticate(client(), &headers).await.unwrap();
            let mut stream = StreamAccess::new(setup.auth.clone(), principal);
            assert!(stream.is_still_valid().await);
            streams.push(stream);
        }
        let [phone, tablet] = &mut streams[..] else { panic!("two streams") };
        let brief = Duration::from_millis(50);
        assert!(tokio::time::timeout(brief, phone.due()).await.is_err(), "no check is due");
        let began = Instant::now();
        change_tokens(&setup.auth.store, TokenChange::Revoke("phone".to_owned())).await.unwrap();
        setup.auth.recheck_streams();
        phone.due().await;
        tablet.due().await;
        assert_eq!((phone.is_still_valid().await, tablet.is_still_valid().await), (false, true));
        assert!(began.elapsed() < RECHECK, "it did not wait for the next check");
        assert!(tokio::time::timeout(brief, tablet.due()).await.is_err(), "checked once");
    }
}
