//! Leases that a gateway gave while it could not reach the database: on its own disk until they are in the database. Owns the file.
//!
//! A file that cannot be read counts as none, and one that cannot be written is said: after a crash these addresses may then be given again.

use dormouse_io::state::StateDir;
use dormouse_node::pool::{Addresses, Lessee};
use std::net::{Ipv4Addr, Ipv6Addr};

const FILE: &str = "cluster-leases";

/// Connection; type and data of the identity; device; addresses.
type Line = (String, (u8, Vec<u8>), u32, Option<Ipv4Addr>, Option<Ipv6Addr>);

pub(super) fn read(state: &StateDir) -> Vec<(Lessee, Addresses)> {
    let content = match state.read(FILE) {
        Ok(Some(content)) => content,
        Ok(None) => return Vec::new(),
        Err(e) => {
            tracing::warn!(%e, "addresses that were given without the database may be given again");
            return Vec::new();
        }
    };
    let lines: Vec<Line> = serde_json::from_slice(content.as_bytes()).unwrap_or_else(|e| {
        tracing::warn!(%e, file = FILE, "addresses that were given without the database may be given again");
        Vec::new()
    });
    let lease = |(connection, identity, device, v4, v6): Line| {
        Some((Lessee::new(connection, identity, device)?, Addresses { v4, v6 }))
    };
    lines.into_iter().filter_map(lease).collect()
}

pub(super) fn write(state: &StateDir, owed: &[(Lessee, Addresses)]) {
    let line = |(holder, addresses): &(Lessee, Addresses)| -> Line {
        let Lessee { connection, identity, device, .. } = holder.clone();
        (connection, identity, device, addresses.v4, addresses.v6)
    };
    let lines: Vec<Line> = owed.iter().map(line).collect();
    let done = match lines.is_empty() {
        true => state.remove(FILE).map_err(|e| e.to_string()),
        false => serde_json::to_vec(&lines)
            .map_err(|e| e.to_string())
            .and_then(|content| state.write(FILE, &content).map_err(|e| e.to_string())),
    };
    if let Err(e) = done {
        tracing::warn!(
            "after a crash addresses that were given without the database may be given again: {e}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_without_the_database_is_there_after_a_restart_and_a_damaged_file_is_none() {
        let path = std::env::temp_dir().join(format!("dormouse-owed-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let state = StateDir::open(&path).unwrap();
        let lease = |device, v6| {
            let holder = Lessee::new("staff".into(), (2, b"device.test".to_vec()), device).unwrap();
            (holder, Addresses { v4: Some(Ipv4Addr::new(10, 0, 0, 9)), v6 })
        };
        let owed = vec![lease(0, None), lease(7, Some(Ipv6Addr::LOCALHOST))];
        write(&state, &owed);
        assert_eq!(read(&state), owed);
        state.write(FILE, b"[[\"staff\"").unwrap();
        assert_eq!(read(&state), []);
        write(&state, &[]);
        assert!(!path.join(FILE).exists());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
