//! Histograms as summaries hold them, with stock's buckets.

use ferroflow_proto::tensorflow::HistogramProto;

/// Counts in buckets that grow by a tenth each, symmetric around zero.
pub struct Histogram {
    limits: Vec<f64>,
    counts: Vec<f64>,
    min: f64,
    max: f64,
    number: f64,
    sum: f64,
    sum_squares: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        let mut positive = Vec::new();
        let mut limit = 1e-12;
        while limit < 1e20 {
            positive.push(limit);
            limit *= 1.1;
        }
        positive.push(f64::MAX);
        let mut limits: Vec<f64> = positive.iter().rev().map(|limit| -limit).collect();
        limits.push(0.0);
        limits.extend(positive);
        Histogram {
            counts: vec![0.0; limits.len()],
            limits,
            min: f64::MAX,
            max: -f64::MAX,
            number: 0.0,
            sum: 0.0,
            sum_squares: 0.0,
        }
    }
}

impl Histogram {
    /// Counts a finite value.
    pub fn add(&mut self, x: f64) {
        let bucket = self.limits.partition_point(|limit| *limit <= x).min(self.limits.len() - 1);
        self.counts[bucket] += 1.0;
        self.min = self.min.min(x);
        self.max = self.max.max(x);
        self.number += 1.0;
        self.sum += x;
        self.sum_squares += x * x;
    }

    /// The message; neighboring empty buckets are written as one.
    pub fn to_proto(&self) -> HistogramProto {
        let (mut bucket, mut bucket_limit) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < self.limits.len() {
            let (mut end, count) = (self.limits[at], self.counts[at]);
            at += 1;
            if count <= 0.0 {
                while at < self.limits.len() && self.counts[at] <= 0.0 {
                    end = self.limits[at];
                    at += 1;
                }
            }
            bucket.push(count);
            bucket_limit.push(end);
        }
        if bucket.is_empty() {
            (bucket, bucket_limit) = (vec![0.0], vec![f64::MAX]);
        }
        HistogramProto {
            min: self.min,
            max: self.max,
            num: self.number,
            sum: self.sum,
            sum_squares: self.sum_squares,
            bucket_limit,
            bucket,
        }
    }
}
