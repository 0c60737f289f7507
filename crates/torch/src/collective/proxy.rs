//! A proxy before a store: whoever comes in must know the run's token.
//!
//! torch's store asks nobody who they are and tells anybody all of its keys. So it listens on the
//! loopback address, and for others there is this proxy, which hands on bytes once it has seen that
//! the other side knows the token. The token itself never travels.
//!
//! ```text
//! client process                                    serving process
//! store's client ─loopback─ way ◄── 32 random bytes ── proxy ─loopback─ store
//!                               ─── HMAC-SHA-256 ────►      wrong, late or too many: closed
//!                               ◄── 1 byte ──────────
//!                               ◄══ bytes as they are ═►
//! ```
//! Not here: encryption. What is sent afterwards, and Gloo's and NCCL's own connections, can be read
//! and disturbed by whoever sits on the network between the machines.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// For a stranger to show that he is none.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Strangers at the proxy at once; more are sent away.
const MOST_STRANGERS: usize = 64;
/// Connections inside.
const MOST_INSIDE: usize = 4096;
/// A secret that can be guessed is none.
const SHORTEST: usize = 16;
/// Between two attempts to reach a proxy that does not open yet.
const PAUSE: Duration = Duration::from_millis(100);
const WELCOME: u8 = 1;
/// Before everything that is signed: longer than a challenge, so that whoever opens a false proxy and
/// chooses the challenge does not get a signature for it.
const SIGNED: &[u8; 40] = b"scalerl: a message of one of its parties";

/// What all processes of one run know and nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn random() -> io::Result<Self> {
        Ok(Self(hex(&random_bytes()?)[..32].to_owned()))
    }

    /// One that somebody has chosen; `None` where it is shorter than 16 characters.
    pub fn chosen(text: &str) -> Option<Self> {
        (text.len() >= SHORTEST).then(|| Self(text.to_owned()))
    }

    /// For a process that is started.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// HMAC-SHA-256 of a challenge, to be sent or compared.
    fn answer(&self, challenge: &[u8; 32]) -> Hmac<Sha256> {
        self.key().chain_update(challenge)
    }

    fn key(&self) -> Hmac<Sha256> {
        let key = Hmac::<Sha256>::new_from_slice(self.0.as_bytes());
        key.expect("keys of any length are allowed")
    }

    /// HMAC-SHA-256 of a message that may be believed for one purpose only. The words of a purpose
    /// are told apart by their lengths.
    pub fn sign(&self, purpose: &[&str], message: &[u8]) -> [u8; 32] {
        self.signing(purpose, message).finalize().into_bytes().into()
    }

    /// Whether somebody who knows this token has signed that, for this purpose.
    pub fn has_signed(&self, purpose: &[&str], message: &[u8], signature: &[u8]) -> bool {
        // In constant time, so that time says nothing about what is right.
        self.signing(purpose, message).verify_slice(signature).is_ok()
    }

    fn signing(&self, purpose: &[&str], message: &[u8]) -> Hmac<Sha256> {
        let mut signing = self.key().chain_update(SIGNED);
        for word in purpose {
            signing.update(&(word.len() as u64).to_be_bytes());
            signing.update(word.as_bytes());
        }
        signing.chain_update((message.len() as u64).to_be_bytes()).chain_update(message)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

fn hex(bytes: &[u8; 32]) -> String {
    let (first, last) = bytes.split_at(16);
    let number = |half: &[u8]| u128::from_be_bytes(half.try_into().expect("16 of 32 bytes"));
    format!("{:032x}{:032x}", number(first), number(last))
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Accepts connections on a thread until dropped; those inside end with the store.
#[derive(Debug)]
pub(super) struct AuthProxy {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl AuthProxy {
    /// Stands at `listener` before the store at `store`.
    pub(super) fn guard(
        listener: TcpListener,
        token: Token,
        store: SocketAddr,
    ) -> io::Result<Self> {
        let strangers = Arc::new(AtomicUsize::new(0));
        Self::open(listener, move |stranger| {
            let _place = Permit::take(&strangers, MOST_STRANGERS)?;
            admit(&stranger, &token)?;
            Ok((stranger, TcpStream::connect(store)?))
        })
    }

    /// The other end: a loopback address from which a way leads through the proxy at `far`.
    pub(super) fn way(token: Token, far: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Self::open(listener, move |near| Ok((near, enter(far, &token, HANDSHAKE)?)))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn open(
        listener: TcpListener,
        connect: impl Fn(TcpStream) -> io::Result<(TcpStream, TcpStream)> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (stopped, inside) = (Arc::clone(&stop), Arc::new(AtomicUsize::new(0)));
        let connect = Arc::new(connect);
        // Ends at the first connection after `stop`; `drop` makes one.
        std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            while let Ok((come, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(place) = Permit::take(&inside, MOST_INSIDE) else { continue };
                let connect = Arc::clone(&connect);
                // Ends with either of the two connections. Where no thread can be had, it is closed.
                let _ = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
                    if let Ok((one, other)) = connect(come) {
                        relay(&one, &other);
                    }
                    drop(place);
                });
            }
        })?;
        Ok(Self { address, stop })
    }
}

impl Drop for AuthProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let own = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            ip => ip,
        };
        // Where that fails the thread has ended already.
        let _ = TcpStream::connect_timeout(&SocketAddr::new(own, self.address.port()), HANDSHAKE);
    }
}

/// One of a limited number.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> io::Result<Self> {
        let place = Self(Arc::clone(count));
        if count.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(io::Error::other("too many"));
        }
        Ok(place)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads so many bytes until a deadline, however slowly they come.
fn read_until<const N: usize>(mut from: &TcpStream, deadline: Instant) -> io::Result<[u8; N]> {
    let (mut bytes, mut have) = ([0; N], 0);
    while have < N {
        let left = deadline.saturating_duration_since(Instant::now());
        from.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        have += match from.read(&mut bytes[have..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            count => count,
        };
    }
    from.set_read_timeout(None)?;
    Ok(bytes)
}

fn admit(mut stranger: &TcpStream, token: &Token) -> io::Result<()> {
    let deadline = Instant::now() + HANDSHAKE;
    stranger.set_write_timeout(Some(HANDSHAKE))?;
    let challenge = random_bytes()?;
    stranger.write_all(&challenge)?;
    let said = read_until::<32>(stranger, deadline)?;
    // In constant time, so that time says nothing about what is right.
    let judged = token.answer(&challenge).verify_slice(&said);
    judged.map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
    stranger.write_all(&[WELCOME])?;
    stranger.set_write_timeout(None)
}

/// Goes through the proxy at `far`.
pub(super) fn enter(far: SocketAddr, token: &Token, patience: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + patience;
    let stream = TcpStream::connect_timeout(&far, patience)?;
    stream.set_nodelay(true)?;
    let challenge = read_until::<32>(&stream, deadline)?;
    (&stream).write_all(&token.answer(&challenge).finalize().into_bytes())?;
    match read_until::<1>(&stream, deadline) {
        Ok([WELCOME]) => Ok(stream),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, "the token is not the run's")),
    }
}

/// Goes through a proxy that may open only later; a wrong token is not tried again.
pub(super) fn knock(far: SocketAddr, token: &Token, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
        match enter(far, token, left.min(HANDSHAKE)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                if Instant::now() >= deadline {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
            entered => return entered.map(drop),
        }
    }
}

/// Hands on bytes both ways until one side ends.
fn relay(one: &TcpStream, other: &TcpStream) {
    let pass = |mut from: &TcpStream, mut to: &TcpStream| {
        // Whatever ends it, the other side is told.
        let _ = io::copy(&mut from, &mut to);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    };
    // Messages of the store are small and waited for. Where this fails they are slow.
    let _ = (one.set_nodelay(true), other.set_nodelay(true));
    std::thread::scope(|scope| {
        scope.spawn(|| pass(one, other));
        pass(other, one);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A store that sends back what it is sent.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn guarded() -> (AuthProxy, Token) {
        let token = Token::random().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (AuthProxy::guard(listener, token.clone(), echo()).unwrap(), token)
    }

    /// What a guest hears after saying this, until the proxy is shut.
    fn hears(proxy: &AuthProxy, said: &[u8]) -> Vec<u8> {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // The proxy may be shut before all of it is sent.
        let _ = (&stream).write_all(said);
        let mut heard = Vec::new();
        let _ = (&stream).read_to_end(&mut heard);
        heard
    }

    #[test]
    fn bytes_pass_for_who_knows_the_token() {
        let (proxy, token) = guarded();
        let way = AuthProxy::way(token.clone(), proxy.address()).unwrap();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(way.address()).unwrap();
            stream.write_all(b"hello").unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello");
        }
        knock(proxy.address(), &token, SOON).unwrap();
    }

    #[test]
    fn a_wrong_token_garbage_and_floods_hear_a_challenge_and_nothing_else() {
        let (proxy, token) = guarded();
        let wrong = Token::random().unwrap();
        let error = knock(proxy.address(), &wrong, SOON).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        for said in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n........"[..], &vec![0xff; 1 << 20]] {
            assert!(hears(&proxy, said).len() <= 32, "a challenge, and no welcome");
        }
        // Who says nothing takes a place for a moment only, and leaves room for others.
        let idle: Vec<_> = (0..8).map(|_| TcpStream::connect(proxy.address()).unwrap()).collect();
        knock(proxy.address(), &token, SOON).unwrap();
        drop(idle);
    }

    #[test]
    fn who_is_silent_is_sent_away() {
        let (proxy, _) = guarded();
        let started = Instant::now();
        assert_eq!(hears(&proxy, b"").len(), 32);
        assert!(started.elapsed() >= HANDSHAKE && started.elapsed() < SOON);
    }

    #[test]
    fn answers_are_those_of_hmac_sha_256() {
        // Python: hmac.new(b"0123456789abcdef", bytes(32), "sha256").hexdigest()
        let answer = Token::chosen("0123456789abcdef").unwrap().answer(&[0; 32]);
        assert_eq!(
            hex(&answer.finalize().into_bytes().into()),
            "a0d810aa82c1dce17e623bfb25614e0dbce8a8ac130d3e81b502acd21bec054f"
        );
        assert!(Token::chosen("short").is_none());
        assert!(!format!("{:?}", Token::chosen("0123456789abcdef")).contains("0123"));
    }

    #[test]
    fn a_signature_is_of_one_token_for_one_purpose_and_message() {
        let token = Token::chosen("0123456789abcdef").unwrap();
        let signature = token.sign(&["answer", "run"], b"{}");
        // Python: u = lambda b: struct.pack(">Q", len(b)) + b
        // hmac.new(b"0123456789abcdef", SIGNED + u(b"answer") + u(b"run") + u(b"{}"), "sha256")
        let expected = "cbb18e8164e06f2d860bb6fedfb67ab98b83cba758137fecb71cf4e2964c5b8a";
        assert_eq!(hex(&signature), expected);
        assert!(token.has_signed(&["answer", "run"], b"{}", &signature));
        assert!(!token.has_signed(&["answer", "run"], b"{ }", &signature), "another message");
        assert!(!token.has_signed(&["request", "run"], b"{}", &signature), "another purpose");
        assert!(!token.has_signed(&["answerr", "un"], b"{}", &signature), "words cut elsewhere");
        assert!(!token.has_signed(&["answer", "run"], b"{}", &[]), "no signature");
        let other = Token::chosen("0123456789abcdeg").unwrap();
        assert!(!other.has_signed(&["answer", "run"], b"{}", &signature), "another token");
    }
}
