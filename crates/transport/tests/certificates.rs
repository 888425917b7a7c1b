//! TLS: right, wrong and missing certificates on either side, and what is said about them.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    ChannelError, ClientOptions, ClientTls, Connection, Execution, PemFiles, Server, ServerOptions,
    ServerTls, TlsError,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A cell's authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// One end's files.
#[derive(Clone)]
struct Files {
    authority: String,
    certificate: String,
    key: String,
}

impl Files {
    fn pem(&self) -> PemFiles<'_> {
        PemFiles {
            authority: self.authority.as_bytes(),
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
        }
    }

    fn client(&self) -> ClientTls {
        ClientTls::new(&self.pem(), "manager").unwrap()
    }
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters.distinguished_name.push(DnType::CommonName, "cell authority");
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Files {
        let mut parameters = CertificateParams::new(["manager".to_owned()]).unwrap();
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Files { authority: self.0.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn named(&self, name: &str) -> Files {
        self.sign(|parameters| {
            parameters.distinguished_name.push(DnType::CommonName, name);
        })
    }
}

fn serve(files: &Files) -> Server {
    serve_with(files, ServerOptions::default())
}

fn serve_with(files: &Files, options: ServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = ServerTls::new(&files.pem()).unwrap();
    Server::start(listener, Some(tls), Arc::new(TestService), options).unwrap()
}

fn join(server: &Server, tls: &ClientTls) -> Result<Connection, ChannelError> {
    Connection::tls(server.address(), tls, &ClientOptions::default())
}

fn who(connection: &Connection) -> Result<String, ChannelError> {
    let asked = Asked { procedure: WHO, ..Asked::default() };
    let reply = ask(connection, &asked, &mut [])?;
    let text = nasd_xdr::Decoder::new(reply.results()).string(200).unwrap().to_owned();
    Ok(text)
}

fn tls_error(error: ChannelError) -> TlsError {
    assert_eq!(error.execution(), Execution::Never, "{error}");
    match error {
        ChannelError::Tls { source, .. } => source,
        other => panic!("{other}"),
    }
}

#[test]
fn both_ends_of_the_cell_agree_and_the_service_knows_who_calls() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    for (name, expected) in
        [("host:disk-3", "host:disk-3"), ("user:1000", "user:1000"), ("admin:x", "admin:x")]
    {
        let connection = join(&server, &cell.named(name).client()).unwrap();
        assert_eq!(who(&connection).unwrap(), expected);
    }
}

#[test]
fn bulk_data_and_pipelining_work_as_without_tls() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    let connection = join(&server, &cell.named("host:a").client()).unwrap();
    for length in [0, 1, 3, 100, 2047, 16_384, 65_537, 1 << 20, 4 << 20] {
        read(&connection, length).unwrap();
        write(&connection, 3, length).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let connection = &connection;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..50 {
                    match random.index(3) {
                        0 => read(connection, random.index(200_000)).unwrap(),
                        1 => write(connection, 5, random.index(200_000)).unwrap(),
                        _ => drop(sleep(connection, 2).unwrap()),
                    }
                }
            });
        }
    });
}

/// Which thread executed a call that waits alone.
fn executor(connection: &Connection) -> Vec<u8> {
    let asked = Asked { procedure: WHERE, ..Asked::default() };
    ask(connection, &asked, &mut []).unwrap().results().to_vec()
}

#[test]
fn calls_that_come_one_by_one_need_no_other_thread() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    let tls = join(&server, &cell.named("host:a").client()).unwrap();
    let plain_server = start(ServerOptions::default());
    for connection in [tls, connect(&plain_server)] {
        let mut fewest = usize::MAX;
        // A few where this machine stops a thread for longer than the server's patience, and many
        // while it has other work as well.
        for _ in 0..5 {
            let executors: Vec<_> = (0..100).map(|_| executor(&connection)).collect();
            let changes = executors.windows(2).filter(|pair| pair[0] != pair[1]).count();
            fewest = fewest.min(changes);
            if fewest < 20 {
                break;
            }
        }
        assert!(fewest < 20, "handed over {fewest} times");
    }
}

#[test]
fn a_slow_call_holds_up_none_that_came_with_it_or_after() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    let joined = || join(&server, &cell.named("host:a").client()).unwrap();
    let (connection, other) = (joined(), Arc::new(joined()));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| sleep(&connection, 8000));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            echo(&connection, b"quick---").unwrap();
        }
        assert!(begun.elapsed() < Duration::from_millis(6000), "it waited for the slow call");
        // Both in one piece: the second is there, and decrypted, when the first begins to wait.
        let in_one = begin(&other, SLEEP, &8000_u32.to_be_bytes(), &[], Vec::new());
        let begun = Instant::now();
        echo(&*other, b"quick---").unwrap();
        assert!(begun.elapsed() < Duration::from_millis(6000), "it waited for the slow call");
        in_one.wait().0.unwrap();
        slow.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_of_another_cell_is_refused() {
    let (cell, other) = (Authority::new(), Authority::new());
    let server = serve(&other.named("host:manager"));
    let error = join(&server, &cell.named("host:a").client()).unwrap_err();
    assert_eq!(tls_error(error.clone()), TlsError::ForeignCertificate { peer: "server" });
    assert!(
        error.to_string().contains("the server's certificate is not of this cell's authority"),
        "{error}"
    );
}

#[test]
fn a_server_of_another_name_or_purpose_is_refused() {
    let cell = Authority::new();
    let tls = ClientTls::new(&cell.named("host:a").pem(), "other").unwrap();
    let server = serve(&cell.named("host:manager"));
    let error = tls_error(join(&server, &tls).unwrap_err());
    assert_eq!(error, TlsError::WrongServer { expected: "other".to_owned() });

    // A user of the cell can't pass for its manager.
    let user = cell.sign(|parameters| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, "user:1000");
    });
    let server = serve(&user);
    let error = tls_error(join(&server, &cell.named("host:a").client()).unwrap_err());
    assert!(matches!(error, TlsError::BadCertificate { peer: "server", .. }), "{error}");
}

/// As a host has it: for client authentication, and without a name of a server.
fn member(cell: &Authority, name: &str, ends: Option<i32>) -> Files {
    cell.sign(|parameters| {
        parameters.subject_alt_names.clear();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, name);
        if let Some(year) = ends {
            parameters.not_after = date_time_ymd(year, 1, 1);
        }
    })
}

#[test]
fn a_host_of_the_cell_serves_by_the_certificate_that_it_has() {
    let cell = Authority::new();
    let to = |name: Option<&str>| {
        let files = member(&cell, "user:1000", None);
        ClientTls::to_host(&files.pem(), name).unwrap()
    };
    let server = serve(&member(&cell, "host:tower", None));
    for name in [None, Some("tower")] {
        assert_eq!(who(&join(&server, &to(name)).unwrap()).unwrap(), "user:1000");
    }
    let other = tls_error(join(&server, &to(Some("castle"))).unwrap_err());
    assert_eq!(other, TlsError::WrongServer { expected: "castle".to_owned() });
    // Who asks for the manager does not take a host for it.
    let manager = member(&cell, "user:1000", None).client();
    tls_error(join(&server, &manager).unwrap_err());
    // A person is no server, nor an administrator, nor who was a host.
    for name in ["user:1000", "admin:owner", "tower"] {
        let server = serve(&member(&cell, name, None));
        let error = tls_error(join(&server, &to(None)).unwrap_err());
        assert!(matches!(error, TlsError::BadCertificate { .. }), "{name}: {error}");
    }
    let server = serve(&member(&cell, "host:tower", Some(2001)));
    let error = tls_error(join(&server, &to(None)).unwrap_err());
    assert_eq!(error, TlsError::NotValidNow { peer: "server" });
    let server = serve(&member(&Authority::new(), "host:tower", None));
    let error = tls_error(join(&server, &to(None)).unwrap_err());
    assert_eq!(error, TlsError::ForeignCertificate { peer: "server" });
}

#[test]
fn a_server_whose_certificate_has_expired_is_refused() {
    let cell = Authority::new();
    let server = serve(&cell.sign(|parameters| {
        parameters.not_before = date_time_ymd(2001, 1, 1);
        parameters.not_after = date_time_ymd(2002, 1, 1);
    }));
    let error = tls_error(join(&server, &cell.named("host:a").client()).unwrap_err());
    assert_eq!(error, TlsError::NotValidNow { peer: "server" });
}

/// A client that trusts the server, but shows what `files` has; the check of its own certificate
/// passes because it believes in its own authority.
fn call_as(server: &Server, trusted: &Authority, files: &Files) -> ChannelError {
    let mut both = files.clone();
    both.authority.push_str(&trusted.0.pem());
    match join(server, &both.client()) {
        Ok(connection) => who(&connection).unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn a_client_of_another_cell_is_refused_and_told_so() {
    let (cell, other) = (Authority::new(), Authority::new());
    let server = serve(&cell.named("host:manager"));
    let error = tls_error(call_as(&server, &cell, &other.named("host:a")));
    assert!(matches!(error, TlsError::Refused { peer: "server", .. }), "{error}");
    assert!(error.to_string().contains("refused this end's certificate"), "{error}");
    // And others are served.
    let connection = join(&server, &cell.named("user:5").client()).unwrap();
    assert_eq!(who(&connection).unwrap(), "user:5");
}

#[test]
fn a_certificate_without_an_identity_is_no_use() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    for name in ["root", "user:x", "host:", "user:-1"] {
        let connection = join(&server, &cell.named(name).client());
        let error = connection.and_then(|connection| who(&connection)).unwrap_err();
        assert!(!matches!(error, ChannelError::TimedOut { .. }), "{name}: {error}");
    }
    let two = cell.sign(|parameters| {
        parameters.distinguished_name.push(DnType::CommonName, "host:a");
        parameters.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "host:manager");
    });
    let connection = join(&server, &two.client());
    assert!(connection.and_then(|connection| who(&connection)).is_err());
}

#[test]
fn a_client_without_tls_gets_nothing() {
    let cell = Authority::new();
    let server = serve(&cell.named("host:manager"));
    let connection = connect(&server);
    let error = echo(&connection, b"").unwrap_err();
    assert!(matches!(error, ChannelError::Broken { .. }), "{error}");
}

#[test]
fn a_server_without_tls_is_told_from_one_with() {
    let cell = Authority::new();
    let server = start(quick_options());
    let error = join(&server, &cell.named("host:a").client()).unwrap_err();
    assert!(matches!(tls_error(error), TlsError::Interrupted { .. } | TlsError::Protocol { .. }));
}

#[test]
fn a_client_that_stalls_in_the_handshake_is_cut_off() {
    let cell = Authority::new();
    let options =
        ServerOptions { handshake_timeout: Duration::from_secs(5), ..ServerOptions::default() };
    let server = serve_with(&cell.named("host:manager"), options);
    let mut silent = raw(server.address());
    let begin = Instant::now();
    let connection = join(&server, &cell.named("host:a").client()).unwrap();
    assert!(begin.elapsed() < Duration::from_millis(3500), "held up by the silent one");
    while server.connections() > 1 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.connections(), 1);
    assert!(is_closed(&mut silent));
    who(&connection).unwrap();
}

#[test]
fn wrong_files_are_told_at_the_start() {
    let (cell, other) = (Authority::new(), Authority::new());
    let good = cell.named("host:a");
    let configuration = |files: &Files| match ClientTls::new(&files.pem(), "manager") {
        Err(TlsError::Configuration { what, why }) => (what, why),
        other => panic!("{other:?}"),
    };
    let foreign = Files { authority: other.0.pem(), ..good.clone() };
    let (what, why) = configuration(&foreign);
    assert_eq!((what, why.as_str()), ("certificate", "not made by this cell's authority"));
    let no_key = Files { key: String::new(), ..good.clone() };
    assert_eq!(configuration(&no_key).0, "key");
    let other_key = Files { key: cell.named("host:b").key, ..good.clone() };
    assert_eq!(configuration(&other_key).0, "certificate or key");
    let no_authority = Files { authority: "nothing".to_owned(), ..good.clone() };
    assert_eq!(configuration(&no_authority).0, "authority");
    assert!(ClientTls::new(&good.pem(), "not a name").is_err());
    assert!(ServerTls::new(&other_key.pem()).is_err());
}

#[test]
fn handshakes_that_never_end_lock_nobody_out() {
    let cell = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = ServerTls::new(&cell.named("host:manager").pem()).unwrap();
    let options = ServerOptions { max_connections: 20, ..ServerOptions::default() };
    let server = Server::start(listener, Some(tls), Arc::new(TestService), options).unwrap();
    let client = cell.named("host:client").client();
    let friend = join(&server, &client).unwrap();
    echo(&friend, b"").unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.extend((0..30).map(|_| raw(server.address())));
        let begin = Instant::now();
        let newcomer = join(&server, &client).unwrap();
        assert_eq!(echo(&newcomer, b"new").unwrap(), b"new");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert!(server.connections() <= 20);
    }
    assert_eq!(echo(&friend, b"still").unwrap(), b"still");
}
