//! A QR code in the terminal. Owns whether it fits.

use dormouse_control::{Error, ErrorKind};
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Empty modules around the code, on each side.
const QUIET: usize = 4;

/// Bytes as a picture of characters, dark on light whatever the terminal's colours are.
///
/// # Errors
/// If they are too many for a code, or the terminal is narrower than it.
pub(super) fn picture(content: &[u8]) -> Result<String, Error> {
    let code = QrCode::with_error_correction_level(content, EcLevel::L).map_err(|_| {
        Error::new(ErrorKind::Other, format!("{} bytes are too many for a QR code", content.len()))
    })?;
    let needed = code.width() + 2 * QUIET;
    if let Some((terminal_size::Width(width), _)) = terminal_size::terminal_size()
        && usize::from(width) < needed
    {
        let message = format!("the QR code has {needed} columns, this terminal has {width}");
        return Err(Error::new(ErrorKind::Other, message).with_change("a smaller font, or without --qr"));
    }
    let image = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
    Ok(image.lines().map(|line| format!("\x1b[97;40m{line}\x1b[0m\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qrcode::Color;

    #[test]
    fn what_fits_is_drawn_and_what_does_not_is_said() {
        let content = [b'x'; 500];
        let picture = super::picture(&content).unwrap();
        let code = QrCode::with_error_correction_level(content, EcLevel::L).unwrap();
        let (colors, width) = (code.to_colors(), code.width());
        // White where nothing is, on a black ground: whatever the terminal's own colours are.
        let lines: Vec<Vec<char>> = picture
            .lines()
            .map(|line| {
                line.strip_prefix("\x1b[97;40m").unwrap().strip_suffix("\x1b[0m").unwrap().chars().collect()
            })
            .collect();
        let whole = width + 2 * QUIET;
        assert!(lines.len() == whole.div_ceil(2) && lines.iter().all(|line| line.len() == whole));
        for (y, x) in (0..whole).flat_map(|y| (0..whole).map(move |x| (y, x))) {
            let half = if y % 2 == 0 { '\u{2580}' } else { '\u{2584}' };
            let light = [half, '\u{2588}'].contains(&lines[y / 2][x]);
            let inside = |n: usize| n.checked_sub(QUIET).filter(|n| *n < width);
            let expected = match (inside(y), inside(x)) {
                (Some(y), Some(x)) => colors[y * width + x] == Color::Light,
                _ => true,
            };
            assert_eq!(light, expected, "row {y}, column {x}");
        }
        assert!(super::picture(&[b'x'; 3000]).unwrap_err().message.contains("too many for a QR code"));
    }
}
