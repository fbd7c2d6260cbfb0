//! Regions of tensors: the intersection of two, and where it lies in memory.

/// Start and length per dimension.
pub(crate) type Bounds = [(i64, i64)];

/// The intersection of two regions.
pub(crate) fn intersection(a: &Bounds, b: &Bounds) -> Option<Vec<(i64, i64)>> {
    let common = |(a, b): (&(i64, i64), &(i64, i64))| {
        let (start, end) = (a.0.max(b.0), (a.0 + a.1).min(b.0 + b.1));
        (end > start).then_some((start, end - start))
    };
    a.iter().zip(b).map(common).collect()
}

/// Elements that are contiguous both in the source and in the destination region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRun {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) length: usize,
}

/// The runs of the intersection of two regions, ascending in both.
pub(crate) struct CopyRuns<'a> {
    from: &'a Bounds,
    to: &'a Bounds,
    common: Vec<(i64, i64)>,
    /// The first dimension from which on both regions are whole, so that a run covers all following dimensions.
    outer: usize,
    length: usize,
    point: Option<Vec<i64>>,
}

impl<'a> CopyRuns<'a> {
    pub(crate) fn new(from: &'a Bounds, to: &'a Bounds) -> CopyRuns<'a> {
        let Some(common) = intersection(from, to) else {
            return CopyRuns { from, to, common: Vec::new(), outer: 0, length: 0, point: None };
        };
        let mut outer = common.len();
        while outer > 0 && common[outer - 1] == from[outer - 1] && common[outer - 1] == to[outer - 1] {
            outer -= 1;
        }
        // The innermost partial dimension still gives one run per row.
        let outer = outer.saturating_sub(1);
        let length = common[outer..].iter().map(|(_, length)| *length as usize).product();
        let point = Some(common.iter().map(|(start, _)| *start).collect());
        CopyRuns { from, to, common, outer, length, point }
    }

    fn advance(&self, mut point: Vec<i64>) -> Option<Vec<i64>> {
        for dim in (0..self.outer).rev() {
            point[dim] += 1;
            if point[dim] < self.common[dim].0 + self.common[dim].1 {
                return Some(point);
            }
            point[dim] = self.common[dim].0;
        }
        None
    }
}

impl Iterator for CopyRuns<'_> {
    type Item = CopyRun;

    fn next(&mut self) -> Option<CopyRun> {
        let point = self.point.take()?;
        let offset = |bounds: &Bounds| {
            point.iter().zip(bounds).fold(0, |sum, (at, (start, length))| sum * length + at - start) as usize
        };
        let run = CopyRun { from: offset(self.from), to: offset(self.to), length: self.length };
        self.point = self.advance(point);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(from: &Bounds, to: &Bounds) -> Vec<(usize, usize, usize)> {
        CopyRuns::new(from, to).map(|run| (run.from, run.to, run.length)).collect()
    }

    #[test]
    fn rows_are_one_run_and_columns_are_many() {
        assert_eq!(runs(&[(0, 4), (0, 3)], &[(1, 2), (0, 3)]), [(3, 0, 6)]);
        assert_eq!(runs(&[(0, 2), (0, 3)], &[(0, 2), (1, 2)]), [(1, 0, 2), (4, 2, 2)]);
        assert_eq!(runs(&[(2, 2), (0, 3)], &[(0, 4), (0, 3)]), [(0, 6, 6)]);
        assert_eq!(runs(&[], &[]), [(0, 0, 1)]);
        assert_eq!(runs(&[(0, 2)], &[(2, 2)]), []);
        assert_eq!(runs(&[(0, 2), (0, 2), (0, 2)], &[(1, 1), (0, 1), (0, 2)]), [(4, 0, 2)]);
    }
}
