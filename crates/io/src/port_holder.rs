//! Which process has a UDP port, for the error message of who would have it. Owns reading `/proc`; must never fail: what cannot be seen, for
//! want of privilege, is not said.

use std::fs;
use std::path::Path;

/// The processes that have this port in this network namespace, each by its name and number.
pub(crate) fn of_udp(port: u16) -> Vec<String> {
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| inodes(table, port)).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.filter(|process| has_one(process, &sockets)).filter_map(|process| named(&process)).collect()
}

/// The inodes of the sockets that are bound to this port, of a table as the kernel writes it.
fn inodes(table: &str, port: u16) -> impl Iterator<Item = String> + '_ {
    let rows = table.lines().skip(1).map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter_map(move |row| {
        let (_, local) = row.get(1)?.rsplit_once(':')?;
        let inode = row.get(9)?;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| format!("socket:[{inode}]"))
    })
}

fn has_one(process: &Path, sockets: &[String]) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|target| sockets.iter().any(|s| target == Path::new(s)))
}

fn named(process: &Path) -> Option<String> {
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim_end().escape_default(), process.file_name()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernels_table_are_read() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            \x20 75: 00000000:01F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 34567 2 0000000000000000 0\n\
            \x20 76: 0100007F:11F4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 34568 2 0000000000000000 0\n";
        assert_eq!(inodes(table, 500).collect::<Vec<_>>(), ["socket:[34567]"]);
        assert_eq!(inodes(table, 501).count() + inodes("nonsense\n1: 2", 500).count(), 0);
    }
}
