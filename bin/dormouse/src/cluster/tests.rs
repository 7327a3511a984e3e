use super::*;

fn owner(url: &str) -> OwnerArgs {
    OwnerArgs { database: url.into(), password_file: None, ca: None }
}

#[test]
fn the_url_of_a_gateway_has_its_role_and_no_password_of_the_owner() {
    for (url, other) in [
        ("postgresql://owner:secret@db1,db2:5433/vpn", "postgresql://dormouse_gw@db1,db2:5433/vpn"),
        ("postgresql:///vpn", "postgresql://dormouse_gw@/vpn"),
        ("postgres://[::1]", "postgres://dormouse_gw@[::1]"),
        (
            "postgresql:///vpn?host=/run/a@b&user=owner&password=secret&sslmode=disable",
            "postgresql://dormouse_gw@/vpn?host=/run/a@b&sslmode=disable",
        ),
        ("postgresql://owner@db/?user=owner", "postgresql://dormouse_gw@db/"),
    ] {
        assert_eq!(access::url_of(url, "dormouse_gw"), other);
    }
}

#[test]
fn the_section_is_one_that_the_daemon_reads() {
    let mut args = AddArgs {
        name: "gw1".into(),
        owner: owner("postgresql://owner@db/vpn"),
        out: None,
        key_file: KEY.into(),
        show: false,
        force: false,
    };
    args.owner.ca = Some("/etc/dormouse/db \"ca\".pem".into());
    let text = section(&args);
    let file = dormouse_node::config::parse(&text).unwrap();
    let cluster = file.cluster.unwrap();
    assert_eq!(
        (cluster.database.as_str(), cluster.name.as_str()),
        ("postgresql://dormouse_gw1@db/vpn", "gw1")
    );
    assert_eq!(cluster.key_file, Path::new(KEY));
    assert_eq!(cluster.password_file.as_deref(), Some(Path::new(PASSWORD)));
    assert_eq!(cluster.ca, args.owner.ca);
    let said = added(&args, Path::new(PASSWORD), &text, None);
    assert!(said.contains(&text) && said.contains("the authority's file"), "{said}");
}

#[test]
fn a_key_is_made_once_and_only_where_no_other_one_can_be_meant() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = std::env::temp_dir().join(format!("dormouse-cluster-key-{}", std::process::id()));
    let path = dir.join("new/cluster.key");
    assert_eq!(key(&path, true).unwrap(), Key::Elsewhere);
    assert!(!path.exists());
    assert_eq!(key(&path, false).unwrap(), Key::Made);
    let first = fs::read_to_string(&path).unwrap();
    assert_eq!((first.len(), first.trim_end().len()), (65, 64));
    assert!(first.trim_end().bytes().all(|c| c.is_ascii_hexdigit()) && first[..64] != "0".repeat(64));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(key(&path, false).unwrap(), Key::There);
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
    fs::write(&path, "short").unwrap();
    assert!(key(&path, false).unwrap_err().message.contains("64 hexadecimal digits"));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_fails_at_the_database_has_the_exit_code_that_fits() {
    use dormouse_cluster::Error as E;
    let server = || "db".to_owned();
    for (error, code) in [
        (E::Settings("x".into()), ExitCode::Usage),
        (E::Unreachable { server: server(), why: "x".into() }, ExitCode::NotConnected),
        (E::Password { server: server(), why: "x".into() }, ExitCode::Authentication),
        (E::Hangs { server: server(), doing: "x" }, ExitCode::Timeout),
        (E::NoTables { server: server() }, ExitCode::Failure),
    ] {
        assert_eq!(told(error).kind.exit_code(), code);
    }
}
