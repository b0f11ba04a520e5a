//! Certificates, and a peer that speaks TLS with the library's buffered connections.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::client::UnbufferedClientConnection;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

use crate::base::buffer::Buf;
use crate::io::stream::Stream;
use crate::io::tls::Session;

/// An authority and what it signs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority { issuer: CertifiedIssuer::self_signed(params, key).expect("signed") }
    }

    /// A certificate for `name`; `until` is the year in which it expires.
    pub fn identity(&self, name: &str, until: i32) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &self.issuer).expect("signed");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (vec![leaf.der().clone()], key)
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        Arc::new(roots)
    }

    pub fn server(&self, versions: Versions) -> ServerConfig {
        let (chain, key) = self.identity(NAME, 2100);
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("versions");
        builder.with_no_client_auth().with_single_cert(chain, key).expect("a key")
    }

    /// A server that asks for certificates of this authority.
    pub fn strict_server(&self) -> ServerConfig {
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots(), provider.clone()).build();
        let (chain, key) = self.identity(NAME, 2100);
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_client_cert_verifier(verifier.expect("a verifier"));
        builder.with_single_cert(chain, key).expect("a key")
    }

    pub fn client(&self, versions: Versions) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("versions");
        builder.with_root_certificates(self.roots()).with_no_client_auth()
    }

    pub fn client_as(&self, (chain, key): Identity) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_root_certificates(self.roots());
        builder.with_client_auth_cert(chain, key).expect("a key")
    }
}

pub type Versions = &'static [&'static SupportedProtocolVersion];

pub const NAME: &str = "example.test";

fn name(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).expect("a name")
}

/// Our session as a server.
pub fn serving(config: ServerConfig) -> Session {
    Session::Server(UnbufferedServerConnection::new(Arc::new(config)).expect("a session"))
}

/// Our session as a client of [`NAME`].
pub fn calling(config: ClientConfig) -> Session {
    Session::Client(UnbufferedClientConnection::new(Arc::new(config), name(NAME)).expect("one"))
}

/// A TLS peer over a stream of ours.
#[derive(Clone)]
pub struct Peer {
    connection: Rc<RefCell<Connection>>,
    stream: Rc<Stream>,
}

impl Peer {
    pub fn server(config: ServerConfig, stream: Stream) -> Peer {
        let connection = ServerConnection::new(Arc::new(config)).expect("a connection");
        Peer::new(Connection::Server(connection), stream)
    }

    pub fn client(config: ClientConfig, host: &str, stream: Stream) -> Peer {
        let connection = ClientConnection::new(Arc::new(config), name(host)).expect("one");
        Peer::new(Connection::Client(connection), stream)
    }

    fn new(connection: Connection, stream: Stream) -> Peer {
        Peer { connection: Rc::new(RefCell::new(connection)), stream: Rc::new(stream) }
    }

    /// The stream below, where the test knows better.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Shakes hands; an error is the library's, after its alert was sent.
    pub async fn handshake(&self) -> io::Result<()> {
        while self.connection.borrow().is_handshaking() {
            self.flush().await?;
            if self.connection.borrow().is_handshaking() && self.receive().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush().await
    }

    /// Shakes hands, and gives what it would send after that: as a server of TLS 1.3, tickets.
    pub async fn handshake_but_for_the_last_flight(&self) -> Vec<u8> {
        while self.connection.borrow().is_handshaking() {
            self.flush().await.expect("sent");
            self.receive().await.expect("received");
        }
        self.sealed()
    }

    /// Seals `text` without sending it.
    pub fn seal(&self, text: &[u8]) -> Vec<u8> {
        let mut connection = self.connection.borrow_mut();
        connection.set_buffer_limit(None);
        connection.writer().write_all(text).expect("no limit");
        drop(connection);
        self.sealed()
    }

    /// What is to be sent.
    pub fn sealed(&self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.connection.borrow().wants_write() {
            self.connection.borrow_mut().write_tls(&mut records).expect("memory");
        }
        records
    }

    pub async fn send(&self, text: &[u8]) -> io::Result<()> {
        let records = self.seal(text);
        self.send_raw(&records).await
    }

    pub async fn send_raw(&self, records: &[u8]) -> io::Result<()> {
        let mut buf = Buf::from(records);
        while !buf.is_empty() {
            let (result, back) = self.stream.write(buf).await;
            buf = back;
            buf.consume(result?);
        }
        Ok(())
    }

    pub async fn flush(&self) -> io::Result<()> {
        let records = self.sealed();
        self.send_raw(&records).await
    }

    /// Reads `count` bytes of plain text, or fewer where a close_notify comes first.
    pub async fn read(&self, count: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < count {
            let mut piece = vec![0; count - text.len()];
            let read = self.connection.borrow_mut().reader().read(&mut piece);
            match read {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.receive().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(text)
    }

    pub fn update_keys(&self) {
        self.connection.borrow_mut().refresh_traffic_keys().expect("TLS 1.3");
    }

    pub fn close_notify(&self) -> Vec<u8> {
        self.connection.borrow_mut().send_close_notify();
        self.sealed()
    }

    async fn receive(&self) -> io::Result<usize> {
        let (result, buf) = self.stream.read(Buf::for_head()).await;
        result?;
        let mut bytes = buf.filled();
        while !bytes.is_empty() {
            if let Err(error) = self.take(&mut bytes) {
                self.flush().await?;
                return Err(error);
            }
        }
        Ok(buf.len())
    }

    fn take(&self, bytes: &mut &[u8]) -> io::Result<()> {
        let mut connection = self.connection.borrow_mut();
        if connection.read_tls(bytes)? == 0 {
            *bytes = &[];
        }
        let state = connection.process_new_packets();
        state.map(|_| ()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}
