//! The markers before a scan: the frame, and the tables that scans are decoded with.

use super::huffman::Codes;

/// A component of the image: brightness or one of the colors.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) across: usize,
    pub(super) down: usize,
    pub(super) table: usize,
}

/// The frame: sizes and components.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) progressive: bool,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) components: Vec<Component>,
    pub(super) max_across: usize,
    pub(super) max_down: usize,
}

impl Frame {
    fn read(data: &[u8], progressive: bool) -> Option<Frame> {
        let &[8, h1, h0, w1, w0, count, ref rest @ ..] = data else { return None };
        let (height, width) = (u16::from_be_bytes([h1, h0]) as usize, u16::from_be_bytes([w1, w0]) as usize);
        if height == 0 || width == 0 || count == 0 || count > 4 || rest.len() != 3 * count as usize {
            return None;
        }
        let component = |bytes: &[u8]| Component {
            id: bytes[0],
            across: (bytes[1] >> 4) as usize,
            down: (bytes[1] & 15) as usize,
            table: bytes[2] as usize,
        };
        let components: Vec<Component> = rest.chunks(3).map(component).collect();
        let valid = |c: &Component| (1..=4).contains(&c.across) && (1..=4).contains(&c.down) && c.table < 4;
        if !components.iter().all(valid) {
            return None;
        }
        let max_across = components.iter().map(|c| c.across).max()?;
        let max_down = components.iter().map(|c| c.down).max()?;
        Some(Frame { progressive, height, width, components, max_across, max_down })
    }

    /// The number of blocks of a component, across and down, that hold pixels of the image.
    pub(super) fn blocks(&self, component: &Component) -> (usize, usize) {
        (
            (self.width * component.across).div_ceil(8 * self.max_across),
            (self.height * component.down).div_ceil(8 * self.max_down),
        )
    }

    /// The number of units, across and down, that interleaved scans are made of.
    pub(super) fn units(&self) -> (usize, usize) {
        (self.width.div_ceil(8 * self.max_across), self.height.div_ceil(8 * self.max_down))
    }
}

/// A scan: which coefficients of which components it holds.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// Components of the frame, each with its tables of codes for the first and the other coefficients.
    pub(super) components: Vec<(usize, usize, usize)>,
    pub(super) first: usize,
    pub(super) last: usize,
    /// The bit of coefficients up to which earlier scans went; 0 if there was none.
    pub(super) high: u32,
    pub(super) low: u32,
    /// The place of the scan's data in the file.
    pub(super) data: usize,
}

/// Everything that markers say up to some scan.
#[derive(Clone)]
pub(super) struct Header {
    pub(super) frame: Frame,
    pub(super) scan: Scan,
    pub(super) tables: Tables,
    /// Whether a marker says that the file follows JFIF.
    pub(super) jfif: bool,
    /// The color transform that a marker of Adobe's says.
    pub(super) adobe: Option<u8>,
}

/// Tables that markers set, and may set again between scans.
#[derive(Clone, Default)]
pub(super) struct Tables {
    pub(super) quantization: [Option<[u16; 64]>; 4],
    pub(super) first_codes: [Option<Codes>; 4],
    pub(super) other_codes: [Option<Codes>; 4],
    pub(super) restart_interval: usize,
}

impl Header {
    /// Reads the markers up to the first scan.
    pub(super) fn read(file: &[u8]) -> Option<Header> {
        if file.get(..2)? != [0xff, 0xd8] {
            return None;
        }
        let mut reader = Reader { frame: None, tables: Tables::default(), jfif: false, adobe: None };
        let scan = reader.next_scan(file, 2)?;
        Some(Header {
            frame: reader.frame?,
            scan,
            tables: reader.tables,
            jfif: reader.jfif,
            adobe: reader.adobe,
        })
    }

    /// Reads on to the next scan from a place in the file, to which this header then belongs. Returns whether there is one:
    /// the image may end before it.
    pub(super) fn next(&mut self, file: &[u8], place: usize) -> Result<bool, Unreadable> {
        let mut reader = Reader {
            frame: Some(self.frame.clone()),
            tables: std::mem::take(&mut self.tables),
            jfif: self.jfif,
            adobe: self.adobe,
        };
        let mut at = place;
        // The image may have ended already.
        let found = match next_marker(file, &mut at) {
            None => Err(Unreadable::FileEnds),
            Some(0xd9) => Ok(None),
            Some(_) => reader.next_scan(file, at - 2).map(Some).ok_or(Unreadable::Damaged),
        };
        self.tables = reader.tables;
        Ok(match found? {
            Some(scan) => {
                self.scan = scan;
                true
            }
            None => false,
        })
    }
}

/// The reason why there is no marker where one was expected.
#[derive(Debug)]
pub(super) enum Unreadable {
    FileEnds,
    Damaged,
}

/// Finds the next marker and passes over it.
pub(super) fn next_marker(file: &[u8], place: &mut usize) -> Option<u8> {
    loop {
        let at = *place + file.get(*place..)?.iter().position(|byte| *byte == 0xff)?;
        let at = at + file[at..].iter().position(|byte| *byte != 0xff)?;
        *place = at + 1;
        if file[at] != 0 {
            return Some(file[at]);
        }
    }
}

struct Reader {
    frame: Option<Frame>,
    tables: Tables,
    jfif: bool,
    adobe: Option<u8>,
}

impl Reader {
    fn next_scan(&mut self, file: &[u8], mut place: usize) -> Option<Scan> {
        loop {
            let marker = next_marker(file, &mut place)?;
            // Markers without data.
            if matches!(marker, 0x01 | 0xd0..=0xd7) {
                continue;
            }
            if !matches!(marker, 0xc0..=0xd7 | 0xda..=0xdd | 0xe0..=0xef | 0xfe) {
                return None;
            }
            let length = u16::from_be_bytes(file.get(place..place + 2)?.try_into().ok()?) as usize;
            let data = file.get(place + 2..place.checked_add(length)?)?;
            place += length;
            match marker {
                0xc0..=0xc2 if self.frame.is_none() => {
                    self.frame = Some(Frame::read(data, marker == 0xc2)?);
                }
                // Other processes (lossless, hierarchical, arithmetic codes), or a second frame.
                0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return None,
                0xc4 => self.read_codes(data)?,
                0xdb => self.read_quantization(data)?,
                0xdd => self.tables.restart_interval = u16::from_be_bytes(data.try_into().ok()?) as usize,
                0xe0 if data.len() >= 14 && data.starts_with(b"JFIF\0") => self.jfif = true,
                0xee if data.len() >= 12 && data.starts_with(b"Adobe") => self.adobe = Some(data[11]),
                0xda => return self.read_scan(data, place),
                _ => {}
            }
        }
    }

    fn read_quantization(&mut self, mut data: &[u8]) -> Option<()> {
        while let [head, rest @ ..] = data {
            let (wide, number) = (head >> 4, (head & 15) as usize);
            let size = if wide > 0 { 128 } else { 64 };
            let (values, rest) = rest.split_at_checked(size)?;
            let mut table = [0; 64];
            for (at, value) in super::ZIGZAG.iter().zip(values.chunks(size / 64)) {
                table[*at as usize] = value.iter().fold(0, |value, byte| value << 8 | u16::from(*byte));
            }
            *self.tables.quantization.get_mut(number)? = Some(table);
            data = rest;
        }
        Some(())
    }

    fn read_codes(&mut self, mut data: &[u8]) -> Option<()> {
        while let [head, rest @ ..] = data {
            let (counts, rest) = rest.split_at_checked(16)?;
            let total = counts.iter().map(|count| *count as usize).sum::<usize>();
            let (symbols, rest) = rest.split_at_checked(total)?;
            let codes = Codes::new(counts.try_into().ok()?, symbols)?;
            let number = (head & 15) as usize;
            let tables =
                if head >> 4 == 0 { &mut self.tables.first_codes } else { &mut self.tables.other_codes };
            *tables.get_mut(number)? = Some(codes);
            data = rest;
        }
        Some(())
    }

    fn read_scan(&self, data: &[u8], place: usize) -> Option<Scan> {
        let frame = self.frame.as_ref()?;
        let [count, rest @ ..] = data else { return None };
        let count = *count as usize;
        if count == 0 || count > frame.components.len() || rest.len() != 2 * count + 3 {
            return None;
        }
        let (selectors, limits) = rest.split_at(2 * count);
        let mut components = Vec::new();
        for selector in selectors.chunks(2) {
            let number = frame.components.iter().position(|c| c.id == selector[0])?;
            components.push((number, (selector[1] >> 4) as usize, (selector[1] & 15) as usize));
        }
        let blocks = |(number, _, _): &(usize, usize, usize)| {
            frame.components[*number].across * frame.components[*number].down
        };
        if count > 1 && components.iter().map(blocks).sum::<usize>() > 10 {
            return None;
        }
        let scan = Scan {
            components,
            first: limits[0] as usize,
            last: limits[1] as usize,
            high: u32::from(limits[2] >> 4),
            low: u32::from(limits[2] & 15),
            data: place,
        };
        if !frame.progressive {
            // Stock takes any limits here.
            return Some(Scan { first: 0, last: 63, high: 0, low: 0, ..scan });
        }
        let ranges = if scan.first == 0 {
            scan.last == 0
        } else {
            scan.last < 64 && scan.first <= scan.last && count == 1
        };
        let bits = (scan.high == 0 || scan.low + 1 == scan.high) && scan.low <= 13;
        (ranges && bits).then_some(scan)
    }
}
