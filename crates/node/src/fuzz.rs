//! The bodies of the fuzz targets: the configuration, what the sleeper has learned, and what programs of IPv4 say to peers of HIP. Not for use in a program.

use crate::config::{parse, resolve, resolve_sleep};

/// Any bytes as a configuration file, resolved as far as it goes. Files that it names hold what the bytes after a zero byte say.
///
/// # Panics
/// If the parser panics, or a value that was read cannot be written.
pub fn config(data: &[u8]) {
    let (text, named) = data.iter().position(|b| *b == 0).map_or((data, &[][..]), |at| data.split_at(at));
    let Ok(text) = core::str::from_utf8(text) else { return };
    let Ok(file) = parse(text) else { return };
    let mut read = |_: &std::path::Path, _: bool| Ok(named.get(1..).unwrap_or_default().to_vec());
    if let Ok(all) = resolve(&file, &mut read) {
        assert_eq!(all.len(), file.connection.len());
        for connection in &all {
            let _ = connection.own_side();
            assert!(!format!("{connection:?}").is_empty());
        }
    }
    let _ = resolve_sleep(&file.sleep, &mut read);
    let written = toml::to_string(&file).unwrap_or_else(|e| panic!("it cannot be written: {e}"));
    let again = parse(&written).unwrap_or_else(|e| panic!("what was written is refused: {e}\n{written}"));
    assert_eq!(toml::to_string(&again).as_ref(), Ok(&written));
}

/// Any bytes as a history of the sleeper, as they are and under a right checksum: one that is taken is lived on with.
///
/// # Panics
/// If a property does not hold.
pub fn history(data: &[u8]) {
    crate::sleeper::fuzz(data);
}

/// Any bytes as packets of programs that know IPv4 only and of the peers of HIP that they speak with: translated, put together, answered with
/// names.
///
/// # Panics
/// If a property does not hold.
pub fn lsi(data: &[u8]) {
    crate::host::lsi_fuzz::fuzz(data);
}
