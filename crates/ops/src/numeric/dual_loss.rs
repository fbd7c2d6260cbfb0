//! Losses of linear models and their duals, as stochastic dual coordinate ascent needs them.

use ferroflow_core::{Result, bail, ensure};

/// A loss of a linear model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DualLoss {
    Logistic,
    Squared,
    Hinge,
    SmoothHinge,
    Poisson,
}

/// The part of the problem that one example sees.
#[derive(Clone, Copy)]
pub(crate) struct Coordinate {
    pub(crate) label: f64,
    pub(crate) weight: f64,
    pub(crate) dual: f64,
    /// The prediction of the model as it is.
    pub(crate) wx: f64,
    /// The squared norm of the features, divided by the strength of the L2 regularization.
    pub(crate) norm: f64,
    /// The number of models that are trained side by side and added.
    pub(crate) partitions: f64,
}

/// Newton's method doubles the number of right digits per step.
const NEWTON_STEPS: usize = 10;

impl DualLoss {
    pub(crate) fn from_name(name: &str) -> Result<DualLoss> {
        Ok(match name {
            "logistic_loss" => DualLoss::Logistic,
            "squared_loss" => DualLoss::Squared,
            "hinge_loss" => DualLoss::Hinge,
            "smooth_hinge_loss" => DualLoss::SmoothHinge,
            "poisson_loss" => DualLoss::Poisson,
            _ => bail!(InvalidArgument, "Unsupported loss type: {name}"),
        })
    }

    /// The label as the loss wants it: classes 0 and 1 become -1 and 1.
    pub(crate) fn label(self, label: f32) -> Result<f32> {
        match self {
            DualLoss::Squared => {}
            DualLoss::Poisson => ensure!(
                label >= 0.0 || label.is_nan(),
                InvalidArgument,
                "Only non-negative labels can be used with the Poisson log loss. Found example with label: {label}"
            ),
            _ if label == 0.0 => return Ok(-1.0),
            _ => ensure!(
                label == 1.0,
                InvalidArgument,
                "Only labels of 0.0 or 1.0 are supported right now. Found example with label: {label}"
            ),
        }
        Ok(label)
    }

    /// The dual variable that is best while all others stay as they are.
    pub(crate) fn updated_dual(self, at: Coordinate) -> f64 {
        let Coordinate { label, dual, wx, .. } = at;
        let curvature = at.partitions * at.norm * at.weight;
        match self {
            DualLoss::Squared => dual + (label - dual - wx) / (1.0 + curvature),
            DualLoss::Hinge => clamped(label, dual + (label - wx) / curvature),
            DualLoss::SmoothHinge => clamped(label, dual + (label - wx - dual) / (curvature + 1.0)),
            DualLoss::Logistic => {
                let mut x = 0.0f64;
                for _ in 0..NEWTON_STEPS {
                    let tanh = x.tanh();
                    let value = -2.0 * label * x - wx - curvature * (0.5 * (1.0 + tanh) / label - dual);
                    let slope = -2.0 * label - curvature * (1.0 - tanh * tanh) * 0.5 / label;
                    x -= value / slope;
                }
                0.5 * (1.0 + x.tanh()) / label
            }
            DualLoss::Poisson => {
                let rest = label - dual;
                let mut x = if rest > 0.0 { rest.ln() } else { 0.0 };
                for _ in 0..NEWTON_STEPS {
                    let exp = x.exp();
                    x -= (x - wx - curvature * (label - dual - exp)) / (1.0 + curvature * exp);
                }
                label - x.exp()
            }
        }
    }

    /// The conjugate of the loss at a dual variable; outside of its domain the largest number.
    pub(crate) fn dual_loss(self, dual: f64, label: f64, weight: f64) -> f64 {
        let scaled = dual * label;
        match self {
            DualLoss::Squared => dual * (0.5 * dual - label) * weight,
            DualLoss::Hinge | DualLoss::SmoothHinge if !(0.0..=1.0).contains(&scaled) => f64::MAX,
            DualLoss::Hinge => -scaled * weight,
            DualLoss::SmoothHinge => (-scaled + 0.5 * dual * dual) * weight,
            DualLoss::Logistic => {
                let entropy = |p: f64| if p > 0.0 { p * p.ln() } else { 0.0 };
                (entropy(scaled) + entropy(1.0 - scaled)) * weight
            }
            DualLoss::Poisson => match label - dual {
                0.0 => 0.0,
                rest if rest < 0.0 => f64::MAX,
                rest => rest * (rest.ln() - 1.0) * weight,
            },
        }
    }

    /// The loss of a prediction.
    pub(crate) fn primal_loss(self, wx: f64, label: f64, weight: f64) -> f64 {
        let margin = label * wx;
        match self {
            DualLoss::Squared => (wx - label) * (wx - label) * weight * 0.5,
            DualLoss::Hinge => (1.0 - margin).max(0.0) * weight,
            DualLoss::SmoothHinge if margin >= 1.0 => 0.0,
            DualLoss::SmoothHinge if margin <= 0.0 => (0.5 - margin) * weight,
            DualLoss::SmoothHinge => (1.0 - margin) * (1.0 - margin) * weight * 0.5,
            DualLoss::Logistic if margin > 0.0 => (-margin).exp().ln_1p() * weight,
            DualLoss::Logistic => (margin.exp().ln_1p() - margin) * weight,
            DualLoss::Poisson => (wx.exp() - wx * label) * weight,
        }
    }

    /// The slope of the loss of an example of weight 1.
    pub(crate) fn primal_slope(self, wx: f64, label: f64) -> f64 {
        let margin = label * wx;
        match self {
            DualLoss::Squared => wx - label,
            DualLoss::Hinge => {
                if margin < 1.0 {
                    -label
                } else {
                    0.0
                }
            }
            DualLoss::SmoothHinge if margin >= 1.0 => 0.0,
            DualLoss::SmoothHinge if margin <= 0.0 => -label,
            DualLoss::SmoothHinge => wx - label,
            DualLoss::Logistic => -label / (1.0 + margin.exp()),
            DualLoss::Poisson => wx.exp() - label,
        }
    }

    /// The inverse of the Lipschitz constant of the slope.
    pub(crate) fn smoothness(self) -> f64 {
        match self {
            DualLoss::Logistic => 4.0,
            DualLoss::Hinge => 0.0,
            _ => 1.0,
        }
    }
}

/// The nearest dual variable whose product with the label is between 0 and 1.
fn clamped(label: f64, dual: f64) -> f64 {
    match label * dual {
        scaled if scaled < 0.0 => 0.0,
        scaled if scaled > 1.0 => label,
        _ => dual,
    }
}
