use super::super::ask::{self, Ends};
use super::*;
use crate::enrol::authority::{Holder as Kind, Issued, request};
use crate::enrol::users::{self, Known, User};
use dormouse_control::{Request, Response, line};
use dormouse_crypto::cert::Identity;
use dormouse_crypto::sign::NewKey;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;

/// What stands in for the daemon answers, and has been told.
#[derive(Default)]
struct Daemon {
    holder: Option<Holder>,
    denied: Vec<String>,
    records: Vec<Renewal>,
    /// It has no room for records.
    full: bool,
}

struct Gateway {
    service: Arc<Service>,
    daemon: Arc<Mutex<Daemon>>,
    dir: PathBuf,
    authority: Authority,
    joe: Issued,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn joe() -> Identity {
    "joe.vpn.example.org".parse().unwrap()
}

fn gateway_id() -> Identity {
    "vpn.example.org".parse().unwrap()
}

/// Answers as the daemon does, one request a connection.
fn stand_in(listener: &UnixListener, daemon: &Mutex<Daemon>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut asked = String::new();
        BufReader::new(&stream).read_line(&mut asked).unwrap();
        let mut daemon = daemon.lock().unwrap();
        let reply = match Request::parse(asked.as_bytes()).unwrap().verb {
            Verb::Holder { .. } => Ok(Reply::Holder(daemon.holder.clone())),
            Verb::Deny { whom: None } => {
                let whom = |whom: &String| dormouse_control::Denied { whom: whom.clone(), since_unix: 1 };
                Ok(Reply::Denials(daemon.denied.iter().map(whom).collect()))
            }
            Verb::Renewal { .. } if daemon.full => Err(Error::new(ErrorKind::Other, "no room")),
            Verb::Renewal { outcome, .. } => {
                daemon.records.push(outcome);
                Ok(Reply::Done)
            }
            other => panic!("{other:?}"),
        };
        let _ = stream.write_all(line(&Response::from(reply)).unwrap().as_bytes());
    }
}

impl Gateway {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("dormouse-serve-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("ca")).unwrap();
        fs::create_dir_all(dir.join("users")).unwrap();
        let now = unix_now();
        let (authority, file) = Authority::new("A test", now).unwrap();
        let own = authority.issue(Kind::Gateway, NewKey::EcdsaP256, &gateway_id(), now, 90).unwrap();
        let joes = authority.issue(Kind::Device, NewKey::EcdsaP256, &joe(), now, 90).unwrap();
        let place = dir.display();
        let text = format!(
            "[connection.devices]\nrole = \"gateway\"\n[connection.devices.local]\nid = \"vpn.example.org\"\n\
             certificate = \"{place}/gateway.pem\"\nkey = \"{place}/gateway.key\"\n\
             [connection.devices.remote]\nid = \"*.vpn.example.org\"\nca = [\"{place}/ca.pem\"]\n\
             [connection.devices.renewals]\nat = \"10.9.0.1:1\"\n"
        );
        let mut user = User::new("joe", joe().to_string(), "devices");
        user.certificates.push(Known::of(&joes.certificate, now));
        for (name, content) in [
            ("ca/ca.key", file.as_bytes()),
            ("gateway.pem", own.pem.as_bytes()),
            ("gateway.key", own.key.as_bytes()),
            ("dormouse.toml", text.as_bytes()),
            ("users/joe.toml", user.text().unwrap().as_bytes()),
        ] {
            fs::write(dir.join(name), content).unwrap();
        }
        let holder = Holder { connection: "devices".into(), identity: joe().to_string() };
        let daemon = Arc::new(Mutex::new(Daemon { holder: Some(holder), ..Daemon::default() }));
        let socket = dir.join("sock");
        let (listener, told) = (UnixListener::bind(&socket).unwrap(), Arc::clone(&daemon));
        std::thread::spawn(move || stand_in(&listener, &told));
        let place = Place::of(&dir.join("dormouse.toml"));
        let service = Arc::new(Service { place, socket, busy: Mutex::default() });
        Self { service, daemon, dir, authority, joe: joes }
    }

    /// What a device hears that shows this certificate, and takes `gateway` for its gateway.
    fn ask(&self, own: &Issued, gateway: Identity) -> Result<Vec<Certificate>, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let service = Arc::clone(&self.service);
        let serving = std::thread::spawn(move || {
            let (stream, from) = listener.accept().unwrap();
            service.answer(stream, from);
        });
        let ca = Certificate::from_pem(self.authority.pem().as_bytes()).unwrap();
        let ends = Ends {
            chain: vec![own.certificate.clone()],
            key: Arc::new(SigningKey::from_pem(own.key.as_bytes()).unwrap()),
            trust: TrustStore::new(vec![ca]).unwrap(),
            gateway,
            from: at.ip(),
            at,
        };
        let (_, asked) = request(NewKey::EcdsaP256, &joe()).unwrap();
        let answer = ask::ask(&ends, &asked);
        serving.join().unwrap();
        answer
    }

    fn records(&self) -> Vec<Renewal> {
        std::mem::take(&mut self.daemon.lock().unwrap().records)
    }

    fn on_record(&self) -> usize {
        users::find(&self.service.place, "joe").unwrap().unwrap().certificates.len()
    }

    #[track_caller]
    fn refused(&self, said: &str) {
        let records = self.records();
        let [Renewal::Refused { why }] = records.as_slice() else { panic!("{records:?}") };
        assert!(why.contains(said), "{why}");
        assert_eq!(self.on_record(), 1);
    }
}

#[test]
fn a_device_is_given_a_certificate_that_is_on_record_and_others_hear_why_not() {
    let gateway = Gateway::new("all");
    // Somebody without an address in the tunnel hears not one byte of TLS.
    let holder = gateway.daemon.lock().unwrap().holder.take();
    assert!(gateway.ask(&gateway.joe, gateway_id()).is_err());
    gateway.refused("nobody has this address in the tunnel");
    gateway.daemon.lock().unwrap().holder = holder;

    gateway.daemon.lock().unwrap().denied.push(joe().to_string());
    let error = gateway.ask(&gateway.joe, gateway_id()).unwrap_err();
    assert_eq!(error.message, "the gateway refuses: joe.vpn.example.org is denied");
    assert_eq!(error.kind, ErrorKind::Authentication);
    gateway.refused("is denied");
    gateway.daemon.lock().unwrap().denied.clear();

    // What cannot be put on record is not given out, and is on none.
    gateway.daemon.lock().unwrap().full = true;
    let error = gateway.ask(&gateway.joe, gateway_id()).unwrap_err();
    assert!(error.message.contains("the gateway cannot: no room"), "{error}");
    gateway.daemon.lock().unwrap().full = false;
    assert_eq!((gateway.on_record(), gateway.records().len()), (1, 0));

    let (other, _) = Authority::new("A test", unix_now()).unwrap();
    let forged = other.issue(Kind::Device, NewKey::EcdsaP256, &joe(), unix_now(), 90).unwrap();
    let error = gateway.ask(&forged, gateway_id()).unwrap_err();
    assert!(error.message.starts_with("the gateway does not take this device's certificate"), "{error}");
    gateway.refused("TLS: ");
    let error = gateway.ask(&gateway.joe, "other.example.org".parse().unwrap()).unwrap_err();
    assert!(error.message.contains("is not the gateway"), "{error}");
    gateway.refused("TLS: ");

    let given = gateway.ask(&gateway.joe, gateway_id()).unwrap();
    let fingerprint = format!("sha256:{}", hex::encode(given[0].fingerprint()));
    let until_unix = given[0].not_after().0;
    assert_eq!(gateway.records(), [Renewal::Issued { fingerprint, until_unix }]);
    assert_eq!((given.len(), gateway.on_record()), (1, 2));
    given[0].require(&joe()).unwrap();
}

#[test]
fn neither_one_nor_all_together_keep_more_connections_open_than_there_is_room_for() {
    let gateway = Gateway::new("seats");
    let ip = |n: usize| IpAddr::from([10, 9, 0, u8::try_from(n).unwrap()]);
    let mut seats: Vec<_> = (0..MOST_OF_ONE).map(|_| gateway.service.seat(ip(7)).unwrap()).collect();
    assert!(gateway.service.seat(ip(7)).is_none());
    seats.extend((0..MOST - MOST_OF_ONE).map(|n| gateway.service.seat(ip(100 + n)).unwrap()));
    assert!(gateway.service.seat(ip(8)).is_none());
    drop(seats.remove(0));
    assert!(gateway.service.seat(ip(7)).is_some());
    drop(seats);
    assert_eq!(gateway.service.busy.lock().unwrap().len(), 0);
}
