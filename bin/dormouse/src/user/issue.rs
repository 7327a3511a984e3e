//! `dormouse user add` and `renew`: a key, a certificate and one file. Owns the order: the record first, so that whatever was issued can be denied,
//! then the file that holds the key; the key is kept nowhere else.

use super::form::Content;
use super::{IssueArgs, password, qr, value};
use crate::book::Book;
use crate::control_verbs::Output;
use crate::enrol::authority::{Authority, Holder, day};
use crate::enrol::bundle::{Given, Parties};
use crate::enrol::gateway::{connection_of, require_named, require_trusted};
use crate::enrol::names::{self, Domain};
use crate::enrol::place::{self, Place};
use crate::enrol::users::{Known, User};
use crate::enrol::wrong;
use dormouse_control::{Error, ErrorKind, ExitCode};
use dormouse_crypto::Secret;
use dormouse_crypto::cert::{Certificate, Identity};
use dormouse_crypto::sign::SigningKey;
use dormouse_io::clock::unix_now;
use dormouse_node::config;
use dormouse_node::config::file::{Connection, Role, Selector};
use dormouse_sansio::UnixTime;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// A file of what a device gets, and its content.
type File = (String, Secret);

pub(super) fn run(place: &Place, args: &IssueArgs, renew: bool, out: &Output) -> Result<ExitCode, Error> {
    names::user(&args.name)?;
    let now = unix_now();
    let (file, form) = (file(args), args.form());
    if form.is_directory() && (args.qr || file.is_none()) {
        return Err(
            wrong("several files are neither one QR code nor one stream").with_change("--out DIRECTORY")
        );
    }
    let Issued { user, files, passphrase } = issue(place, args, renew, now)?;
    let passphrase = passphrase.as_ref().map(|text| text.as_str());
    let content = files.first().map(|(_, content)| content.as_bytes()).unwrap_or_default();
    // What was issued is there: that it cannot be drawn is no failure.
    let picture = args.qr.then(|| qr::picture(content).unwrap_or_else(|e| format!("no QR code: {e}\n")));
    let Some(file) = file else {
        // Standard output is the file; what there is to say goes beside it.
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(content).and_then(|()| stdout.flush());
        written.map_err(|e| Error::new(ErrorKind::Other, format!("standard output: {e}")))?;
        let said = passphrase.map(|text| format!("passphrase of its key, shown this once: {text}\n"));
        eprint!("{}{}", said.unwrap_or_default(), picture.unwrap_or_default());
        return Ok(ExitCode::Ok);
    };
    let answer = json!({ "version": 1, "user": value(&user, now), "file": file, "passphrase": passphrase });
    out.print(&format!("{answer}\n"), || {
        let shown = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let advice = form.advice(&shown, &args.name);
        let how = match passphrase {
            None => format!("{} has its key: bring it to the device confidentially (a stick, scp)", file.display()),
            Some(text) => format!(
                "{} has its key under the passphrase  {text}  which is shown this once: bring both to the device, each by another way",
                file.display()
            ),
        };
        format!(
            "{} may come until {}\n{how}, and there: {advice}\n{}",
            user.id,
            day(user.until()),
            picture.unwrap_or_default()
        )
    })
}

/// Where the file goes; `None`: standard output.
pub(super) fn file(args: &IssueArgs) -> Option<PathBuf> {
    let path = args.out.clone().unwrap_or_else(|| args.form().file_name(&args.name).into());
    (path.as_os_str() != "-").then_some(path)
}

/// What came of it.
struct Issued {
    user: User,
    files: Vec<File>,
    /// What the key is encrypted under, where the client takes it so.
    passphrase: Option<Zeroizing<String>>,
}

/// Issues, and writes the file and the record.
fn issue(place: &Place, args: &IssueArgs, renew: bool, now: UnixTime) -> Result<Issued, Error> {
    let name = &args.name;
    let key = place.path("ca/ca.key");
    // Before the lock makes a directory: a machine that is no gateway stays as it is.
    place::demand(&key, place::read(&key)?, "dormouse gateway init")?;
    let _lock = place.lock()?;
    let authority = Authority::load(&place::demand(&key, place::read(&key)?, "dormouse gateway init")?)?;
    let text = place::demand(&place.config, place::read_text(&place.config)?, "dormouse gateway init")?;
    let file = config::parse(&text)
        .map_err(|e| Error::new(ErrorKind::Other, format!("{}: {}", place.config.display(), e.trim_end())))?;
    let mut book = Book::of(place, &file)?;
    let known = book.find(name)?;
    let wanted = args.connection.as_ref().or(known.as_ref().map(|user| &user.connection));
    let (connection, c) = connection_of(&file, wanted)?;
    require_trusted(connection, c, &authority)?;
    require_named(connection, c)?;
    let domain = Domain::of(&c.remote.id, &format!("connection.{connection}.remote.id"))?;
    let identity = domain.identity(name)?;
    require_no_gateways(&file, &identity)?;
    let before = known.clone();
    let mut user = match (known, renew) {
        (None, false) => User::new(name, identity.to_string(), connection),
        (Some(user), true) => user,
        (Some(_), false) => {
            let advice = format!("dormouse user renew {name}, or first dormouse user remove {name}");
            return Err(wrong(format!("there is a user {name} already")).with_change(advice));
        }
        (None, true) => return Err(book.get(name).err().unwrap_or_else(|| wrong("no such user"))),
    };
    let form = args.form();
    let own = Own::of(c, args.sign)?;
    let gateway_key = own.certificate.as_ref().and_then(|own| own.public_key().ok()).map(|key| key.kind());
    let issued = authority.issue(Holder::Device, form.key(gateway_key), &identity, now, args.days)?;
    user.id = identity.to_string();
    user.certificates.retain(|known| known.until >= now.0);
    user.certificates.push(Known::of(&issued.certificate, now));
    user.no_renewals |= args.no_renewals;
    let passphrase = form.has_passphrase().then(password::generate);
    let content = Content {
        user: name,
        parties: &Parties {
            renewals: c.renewals.as_ref().map(|renewals| renewals.at).filter(|_| !user.no_renewals),
            ..parties(c, identity.to_string())
        },
        ca: authority.pem(),
        given: Given::Certificate { certificate: &issued.pem, key: &issued.key },
        gateway: own.certificate.as_ref(),
        passphrase: passphrase.as_ref().map_or("", |text| text.as_str()),
        sign: own.key.as_ref(),
        on_demand: args.on_demand,
    };
    let files = form.files(&content)?;
    write(&mut book, before.as_ref(), &user, args, &files)?;
    Ok(Issued { user, files, passphrase })
}

/// Who speaks with whom, as a device of this connection is told.
pub(super) fn parties(c: &Connection, id: String) -> Parties {
    Parties {
        name: label(&c.local.id),
        gateway: c.local.id.clone(),
        gateway_id: c.local.id.clone(),
        id,
        remote: carried(c),
        ike_proposals: c.ike.proposals.clone(),
        esp_proposals: c.child.proposals.clone(),
        renewals: None,
    }
}

/// The gateway's own certificate, as far as it can be read, and its key if something is to be signed.
pub(super) struct Own {
    pub(super) certificate: Option<Certificate>,
    pub(super) key: Option<SigningKey>,
}

impl Own {
    pub(super) fn of(c: &Connection, sign: bool) -> Result<Self, Error> {
        let read = |path: &Option<PathBuf>| path.as_ref().map(|path| place::read(path)).transpose();
        let content = read(&c.local.certificate).ok().flatten().flatten();
        let certificate = content.and_then(|content| Certificate::from_pem(content.as_bytes()).ok());
        if !sign {
            return Ok(Self { certificate, key: None });
        }
        let content = read(&c.local.key)?.flatten();
        let content = content
            .ok_or_else(|| wrong("the gateway's key is no file, so that nothing can be signed with it"))?;
        let key = SigningKey::from_file_content(content.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        Ok(Self { certificate, key: Some(key) })
    }
}

/// Writes the record of the user first and the device's file then: a file whose certificate no record names could not be denied. If the file
/// cannot be made, the record is `before` again; an end in between leaves a certificate on record that nobody has.
fn write(
    book: &mut Book<'_>,
    before: Option<&User>,
    user: &User,
    args: &IssueArgs,
    files: &[File],
) -> Result<(), Error> {
    book.put(before, user)?;
    let Some(path) = file(args) else { return Ok(()) };
    let made = place::create_all(&path, files).map_err(|e| e.with_change("another --out"));
    made.map_err(|mut e| {
        let undone = match before {
            Some(before) => book.put(Some(user), before),
            None => book.remove(&user.name),
        };
        if let Err(why) = undone {
            e.message = format!("{}; and {} has on record what was not given out", e.message, why.message);
        }
        e
    })
}

/// Demands that this is no identity of the gateway's own: whoever has a user's certificate of that name could be the gateway to the other
/// users.
fn require_no_gateways(file: &config::file::File, identity: &Identity) -> Result<(), Error> {
    let own = |c: &Connection| c.local.id.parse::<Identity>().is_ok_and(|own| own.is_same_as(identity));
    match file.connection.iter().find(|(_, c)| c.role == Role::Gateway && own(c)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("{identity} is the gateway itself: connection.{name}.local.id");
            Err(wrong(message).with_change("another name"))
        }
    }
}

/// What the connection is called at a device: the first label of the gateway's name.
fn label(id: &str) -> String {
    let first = id.split('.').next().unwrap_or_default();
    let named = names::connection(first).is_ok() && !first.bytes().all(|c| c.is_ascii_digit());
    if named { first.into() } else { "vpn".into() }
}

/// What a device's tunnel carries: what the gateway leads to. All of one family means all: the other one must not leave in clear.
fn carried(c: &Connection) -> Vec<IpNet> {
    let all = std::iter::once(&c.child).chain(c.children.values()).flat_map(|child| &child.local);
    let nets: Vec<IpNet> =
        all.filter_map(|s| if let Selector::Net(net) = s { Some(*net) } else { None }).collect();
    if nets.iter().any(|net| net.prefix_len() == 0) {
        let mut full: Vec<IpNet> = vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
        full.extend(nets.into_iter().filter(|net| net.prefix_len() > 0));
        return full;
    }
    nets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrol::bundle::Bundle;
    use crate::enrol::users;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn arguments(name: &str) -> IssueArgs {
        IssueArgs {
            name: name.into(),
            days: 10,
            form: None,
            out: None,
            qr: false,
            connection: None,
            password: false,
            sign: false,
            on_demand: false,
            no_renewals: false,
        }
    }

    struct Gateway {
        place: Place,
        dir: PathBuf,
    }

    impl Drop for Gateway {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    impl Gateway {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("dormouse-issue-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("ca")).unwrap();
            let place = Place::of(&dir.join("dormouse.toml"));
            let new = Self { place, dir };
            let (ca, file) = Authority::new("A test", NOW).unwrap();
            fs::write(new.dir.join("ca/ca.key"), file.as_bytes()).unwrap();
            fs::write(new.dir.join("ca.pem"), ca.pem()).unwrap();
            new.configure("");
            new
        }

        fn configure(&self, more: &str) {
            let text = format!(
                "[connection.devices]\nrole = \"gateway\"\n[connection.devices.local]\nid = \"vpn.example.org\"\n\
                 [connection.devices.remote]\nid = \"*.vpn.example.org\"\nca = [\"{}\"]\n\
                 [connection.devices.child]\nlocal = [\"0.0.0.0/0\"]\n{more}",
                self.dir.join("ca.pem").display()
            );
            fs::write(&self.place.config, text).unwrap();
        }

        fn ask(&self, name: &str, renew: bool, out: &str) -> Result<(User, Secret), Error> {
            let out = Some(self.dir.join(out));
            let Issued { user, mut files, passphrase } =
                issue(&self.place, &IssueArgs { out, ..arguments(name) }, renew, NOW)?;
            assert!(passphrase.is_none());
            Ok((user, files.remove(0).1))
        }
    }

    #[test]
    fn a_user_gets_one_file_for_its_owner_alone_and_the_gateway_keeps_no_key() {
        let gateway = Gateway::new("add");
        let (user, content) = gateway.ask("joe", false, "joe.dormouse").unwrap();
        assert_eq!((user.id.as_str(), user.days_left(NOW)), ("joe.vpn.example.org", Some(9)));
        let path = gateway.dir.join("joe.dormouse");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let bundle = Bundle::read(&Secret::from(fs::read(&path).unwrap()), "x").unwrap();
        assert_eq!((bundle.name.as_str(), bundle.gateway.as_str()), ("vpn", "vpn.example.org"));
        assert_eq!(bundle.remote.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0/0", "::/0"]);
        assert!(content.as_bytes().len() < 2953, "it fits a QR code: {}", content.as_bytes().len());
        let record = fs::read_to_string(users::path(&gateway.place, "joe")).unwrap();
        assert!(record.contains("sha256:") && !record.contains("PRIVATE"), "{record}");
        assert_eq!(fs::metadata(gateway.dir.join("users")).unwrap().permissions().mode() & 0o777, 0o700);

        let error = gateway.ask("joe", false, "again").unwrap_err();
        assert_eq!(error.message, "there is a user joe already");
        assert!(error.change.unwrap().starts_with("dormouse user renew joe"));
        let error = gateway.ask("joe", true, "joe.dormouse").unwrap_err();
        assert!(error.message.ends_with("joe.dormouse is there already"), "{error}");
        let (user, _) = gateway.ask("joe", true, "again").unwrap();
        assert_eq!(user.certificates.len(), 2, "the former counts until it ends");
        assert_eq!(gateway.ask("ann", true, "ann").unwrap_err().message, "no user is called ann");
    }

    #[test]
    fn what_is_issued_is_on_record_before_it_can_be_anywhere_and_off_it_if_it_is_nowhere() {
        let gateway = Gateway::new("order");
        let record = || fs::read_to_string(users::path(&gateway.place, "joe")).ok();
        fs::write(gateway.dir.join("taken"), "").unwrap();
        for out in ["taken", "missing/joe"] {
            let error = gateway.ask("joe", false, out).unwrap_err();
            assert!(error.message.contains(out), "{error}");
            assert_eq!((record(), error.change.as_deref()), (None, Some("another --out")));
        }
        gateway.ask("joe", false, "joe").unwrap();
        let before = record();
        gateway.ask("joe", true, "taken").unwrap_err();
        assert_eq!(record(), before);
        // Neither can be written: the error is of what comes first.
        let fresh = |name: &str| gateway.dir.join(format!("users/{name}.toml.new-{}", std::process::id()));
        for (name, renew) in [("joe", true), ("ann", false)] {
            fs::create_dir(fresh(name)).unwrap();
            let error = gateway.ask(name, renew, "taken").unwrap_err();
            assert!(error.message.contains(&format!("users/{name}.toml")), "{error}");
        }
    }

    #[test]
    fn no_user_is_the_gateway() {
        let gateway = Gateway::new("itself");
        gateway.configure(
            "[connection.more]\nrole = \"gateway\"\n[connection.more.local]\nid = \"Two.vpn.example.org\"\n",
        );
        let text = fs::read_to_string(&gateway.place.config).unwrap();
        let own = text.replace("id = \"vpn.example.org\"", "id = \"one.vpn.example.org\"");
        fs::write(&gateway.place.config, own).unwrap();
        let ask = |name: &str| {
            let (out, connection) = (Some(gateway.dir.join(name)), Some("devices".to_owned()));
            let args = IssueArgs { out, connection, ..arguments(name) };
            issue(&gateway.place, &args, false, NOW).map(|issued| issued.user)
        };
        for (name, connection) in [("one", "devices"), ("two", "more")] {
            let error = ask(name).unwrap_err();
            let said =
                format!("{name}.vpn.example.org is the gateway itself: connection.{connection}.local.id");
            assert_eq!(error.message, said);
            assert!(!gateway.dir.join(name).exists() && !users::path(&gateway.place, name).exists());
        }
        ask("three").unwrap();
    }

    #[test]
    fn of_two_that_add_the_same_user_at_once_one_does() {
        let gateway = std::sync::Arc::new(Gateway::new("race"));
        let one = |n: usize| {
            let gateway = std::sync::Arc::clone(&gateway);
            std::thread::spawn(move || gateway.ask("joe", false, &format!("joe-{n}")).map(|(user, _)| user))
        };
        let all: Vec<_> =
            (0..8).map(one).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(all.iter().filter(|result| result.is_ok()).count(), 1, "{all:?}");
        let files = fs::read_dir(&gateway.dir).unwrap().flatten();
        let files = files.filter(|entry| entry.file_name().to_string_lossy().starts_with("joe-")).count();
        assert_eq!((files, users::find(&gateway.place, "joe").unwrap().unwrap().certificates.len()), (1, 1));
    }

    #[test]
    fn where_no_user_can_be_made_it_is_said_why() {
        let gateway = Gateway::new("wrong");
        let refused = |said: &str| {
            let error = gateway.ask("joe", false, "x").expect_err(said);
            assert!(error.message.contains(said), "{said}: {error}");
            assert!(!gateway.dir.join("x").exists() && !users::path(&gateway.place, "joe").exists());
        };
        gateway.configure("[connection.more]\nrole = \"gateway\"\n");
        refused("there are several gateway connections");
        fs::write(&gateway.place.config, "[daemon]\n").unwrap();
        refused("this machine is no gateway");
        fs::write(&gateway.place.config, "nonsense\n").unwrap();
        refused("dormouse.toml: ");
        gateway.configure("");
        let text = fs::read_to_string(&gateway.place.config).unwrap();
        fs::write(&gateway.place.config, text.replace("id = \"vpn.example.org\"", "id = \"CN=vpn\""))
            .unwrap();
        refused("connection.devices.local.id: \"CN=vpn\" is neither a host name");
        gateway.configure("");
        fs::write(gateway.dir.join("ca.pem"), Authority::new("Another", NOW).unwrap().0.pem()).unwrap();
        refused("connection.devices.remote.ca does not name the authority of ca/ca.key");
        fs::remove_file(gateway.dir.join("ca.pem")).unwrap();
        refused("ca.pem does not exist");
        fs::remove_file(gateway.dir.join("ca/ca.key")).unwrap();
        refused("ca/ca.key does not exist");
        // A record that cannot be kept takes its file away again.
        let gateway = Gateway::new("full");
        fs::write(gateway.dir.join("users"), "no directory").unwrap();
        assert!(gateway.ask("joe", false, "x").is_err());
        assert!(!gateway.dir.join("x").exists());
    }

    #[test]
    fn a_devices_connection_is_called_by_the_gateways_first_label() {
        for (id, expected) in [
            ("office.example.org", "office"),
            ("203.0.113.1", "vpn"),
            ("2001:db8::1", "vpn"),
            ("gateway.test", "vpn"),
        ] {
            assert_eq!(label(id), expected);
        }
    }
}
