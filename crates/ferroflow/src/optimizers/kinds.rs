//! All optimizers: their hyperparameters, slots and update ops, as a table.

use super::apply::Arg::{Grad, Hyper as N, Indices, Power, Slot, Step, Var};
use super::apply::{Hyper, Rule, Sparse};
use super::slots::{Slots, Start};
use super::sparse::SparseUpdate;
use super::{Optimizer, Scalar};
use crate::initializers::{self, constant, ones, zeros};
use crate::variables::Variable;
use ferroflow_core::{Result, Shape, ensure};

/// Defines an optimizer's struct, builder methods and rule.
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $type:ident, $name:literal, new($($arg:ident: $arg_type:ty),*),
        { $($(#[$field_doc:meta])* $field:ident: $field_type:ty = $default:expr,)* }
        |$self:ident, $rule:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $type {
            name: String,
            use_locking: bool,
            made: Slots,
            $($arg: $arg_type,)*
            $($field: $field_type,)*
        }

        impl $type {
            /// Creates the optimizer with TensorFlow's defaults.
            pub fn new($($arg: impl Into<$arg_type>),*) -> $type {
                $type {
                    name: $name.to_owned(),
                    use_locking: false,
                    made: Slots::default(),
                    $($arg: $arg.into(),)*
                    $($field: $default,)*
                }
            }

            /// Sets the name of its nodes and slots.
            #[must_use]
            pub fn name(mut self, name: &str) -> $type {
                self.name = name.to_owned();
                self
            }

            /// Sets whether an update holds the variable's lock, so that no reader sees half of it; `false` by default.
            #[must_use]
            pub fn use_locking(mut self, use_locking: bool) -> $type {
                self.use_locking = use_locking;
                self
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(mut self, value: impl Into<$field_type>) -> $type {
                    self.$field = value.into();
                    self
                }
            )*
        }

        impl Optimizer for $type {
            fn rule(&self) -> Result<Rule> {
                let $self = self;
                let $rule = |op, dense, sparse| {
                    Rule {
                        name: $self.name.clone(),
                        op,
                        hyper: Vec::new(),
                        slots: Vec::new(),
                        powers: Vec::new(),
                        dense,
                        sparse,
                        attrs: Vec::new(),
                        step: None,
                        use_locking: $self.use_locking,
                        made: $self.made.clone(),
                    }
                };
                $body
            }
        }
    };
}

impl Rule {
    fn hyper<const N: usize>(mut self, hyper: [(&'static str, &Scalar); N]) -> Rule {
        self.hyper.extend(hyper.into_iter().map(|(name, rate)| Hyper::Shared(name, rate.clone())));
        self
    }

    fn slots<const N: usize>(mut self, slots: [(&'static str, Start); N]) -> Rule {
        self.slots = slots.into();
        self
    }

    fn with_momentum(self, learning_rate: &Scalar, momentum: &Scalar, nesterov: bool) -> Rule {
        let hyper = [("learning_rate", learning_rate), ("momentum", momentum)];
        let mut rule = self.hyper(hyper).slots([("momentum", from_zero())]);
        rule.attrs.push(("use_nesterov", nesterov));
        rule
    }

    fn powers<const N: usize>(mut self, powers: [(&'static str, usize); N]) -> Rule {
        self.powers = powers.into();
        self
    }
}

fn from_zero() -> Start {
    Start::SlotScope(zeros())
}

/// Rejects numbers that TensorFlow rejects.
fn check(what: &str, value: f64, fits: bool, needed: &str) -> Result<()> {
    ensure!(fits, InvalidArgument, "{what} must be {needed}, but is {value}");
    Ok(())
}

fn check_strength(what: &str, strength: &Scalar) -> Result<()> {
    match strength {
        Scalar::Fixed(value) => check(what, *value, *value >= 0.0, "positive or zero"),
        Scalar::Output(_) => Ok(()),
    }
}

optimizer! {
    /// Gradient descent.
    GradientDescent, "GradientDescent", new(learning_rate: Scalar), {}
    |o, rule| {
        let sparse = Sparse::Nodes(SparseUpdate::GradientDescent);
        Ok(rule("GradientDescent", &[Var, N(0), Grad], sparse).hyper([("learning_rate", &o.learning_rate)]))
    }
}

optimizer! {
    /// Gradient descent with momentum, plain or Nesterov's.
    Momentum, "Momentum", new(learning_rate: Scalar, momentum: Scalar), {
        /// Sets whether to use Nesterov's momentum; `false` by default.
        nesterov: bool = false,
    }
    |o, rule| {
        let sparse = Sparse::Op(&[Var, Slot(0), N(0), Grad, Indices, N(1)]);
        let rule = rule("Momentum", &[Var, Slot(0), N(0), Grad, N(1)], sparse);
        Ok(rule.with_momentum(&o.learning_rate, &o.momentum, o.nesterov))
    }
}

optimizer! {
    /// Momentum as Keras defines it: the accumulator includes the learning rate, so that a change of the rate applies to
    /// new gradients only.
    KerasMomentum, "KerasMomentum", new(learning_rate: Scalar, momentum: Scalar), {
        /// Sets whether to use Nesterov's momentum; `false` by default.
        nesterov: bool = false,
    }
    |o, rule| {
        let sparse = Sparse::Op(&[Var, Slot(0), N(0), Grad, Indices, N(1)]);
        let rule = rule("KerasMomentum", &[Var, Slot(0), N(0), Grad, N(1)], sparse);
        Ok(rule.with_momentum(&o.learning_rate, &o.momentum, o.nesterov))
    }
}

optimizer! {
    /// Adagrad: steps shrink with the sum of squares of past gradients.
    Adagrad, "Adagrad", new(learning_rate: Scalar), {
        /// Sets the initial value of the sums of squares; 0.1 by default.
        initial_accumulator: f64 = 0.1,
    }
    |o, rule| {
        let start = o.initial_accumulator;
        check("initial_accumulator", start, start > 0.0, "positive")?;
        let sparse = Sparse::Op(&[Var, Slot(0), N(0), Grad, Indices]);
        Ok(rule("Adagrad", &[Var, Slot(0), N(0), Grad], sparse)
            .hyper([("learning_rate", &o.learning_rate)])
            .slots([("accumulator", Start::SlotScope(constant(start)))]))
    }
}

optimizer! {
    /// Adagrad with an epsilon that prevents divisions by zero.
    AdagradV2, "Adagrad", new(learning_rate: Scalar), {
        /// Sets the initial value of the sums of squares; 0.1 by default.
        initial_accumulator: f64 = 0.1,
        /// Sets the number that prevents divisions by zero; 1e-7 by default.
        epsilon: Scalar = Scalar::Fixed(1e-7),
    }
    |o, rule| {
        let start = o.initial_accumulator;
        check("initial_accumulator", start, start >= 0.0, "positive or zero")?;
        let sparse = Sparse::Op(&[Var, Slot(0), N(0), N(1), Grad, Indices]);
        Ok(rule("AdagradV2", &[Var, Slot(0), N(0), N(1), Grad], sparse)
            .hyper([("learning_rate", &o.learning_rate), ("epsilon", &o.epsilon)])
            .slots([("accumulator", Start::SlotScope(constant(start)))]))
    }
}

optimizer! {
    /// Adagrad with dual averaging, for linear models with regularization. It depends on the global step.
    AdagradDa, "AdagradDA", new(learning_rate: Scalar, global_step: Variable), {
        /// Sets the initial value of the sums of squares; 0.1 by default.
        initial_accumulator: f64 = 0.1,
        /// Sets the strength of L1 regularization; 0 by default.
        l1: Scalar = Scalar::Fixed(0.0),
        /// Sets the strength of L2 regularization; 0 by default.
        l2: Scalar = Scalar::Fixed(0.0),
    }
    |o, rule| {
        let start = o.initial_accumulator;
        check("initial_accumulator", start, start > 0.0, "positive")?;
        let dense = &[Var, Slot(0), Slot(1), Grad, N(0), N(1), N(2), Step];
        let sparse = Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, N(0), N(1), N(2), Step]);
        let mut rule = rule("AdagradDA", dense, sparse).hyper([("learning_rate", &o.learning_rate)]).slots([
            ("gradient_accumulator", Start::OptimizerScope(0.0)),
            ("gradient_squared_accumulator", Start::OptimizerScope(start)),
        ]);
        rule.hyper.extend([Hyper::Each(o.l1.clone()), Hyper::Each(o.l2.clone())]);
        rule.step = Some(o.global_step.clone());
        Ok(rule)
    }
}

optimizer! {
    /// Adadelta: steps are scaled by the ratio of recent updates to recent gradients.
    Adadelta, "Adadelta", new(learning_rate: Scalar), {
        /// Sets the decay of the averages; 0.95 by default.
        rho: Scalar = Scalar::Fixed(0.95),
        /// Sets the number that prevents divisions by zero; 1e-8 by default.
        epsilon: Scalar = Scalar::Fixed(1e-8),
    }
    |o, rule| {
        let dense = &[Var, Slot(0), Slot(1), N(0), N(1), N(2), Grad];
        let sparse = Sparse::Op(&[Var, Slot(0), Slot(1), N(0), N(1), N(2), Grad, Indices]);
        Ok(rule("Adadelta", dense, sparse)
            .hyper([("lr", &o.learning_rate), ("rho", &o.rho), ("epsilon", &o.epsilon)])
            .slots([("accum", from_zero()), ("accum_update", from_zero())]))
    }
}

optimizer! {
    /// Adam: steps along a moving average of the gradient, scaled by a moving average of its square.
    Adam, "Adam", new(learning_rate: Scalar), {
        /// Sets the decay of the average of gradients; 0.9 by default.
        beta1: Scalar = Scalar::Fixed(0.9),
        /// Sets the decay of the average of squares; 0.999 by default.
        beta2: Scalar = Scalar::Fixed(0.999),
        /// Sets the number that prevents divisions by zero; 1e-8 by default.
        epsilon: Scalar = Scalar::Fixed(1e-8),
        /// Sets whether to scale by the largest average of squares so far; `false` by default.
        amsgrad: bool = false,
    }
    |o, rule| {
        let sparse = Sparse::Nodes(SparseUpdate::Adam { amsgrad: o.amsgrad });
        let rule = if o.amsgrad {
            let dense =
                &[Var, Slot(0), Slot(1), Slot(2), Power(0), Power(1), N(0), N(1), N(2), N(3), Grad];
            rule("AdamWithAmsgrad", dense, sparse)
                .slots([("m", from_zero()), ("v", from_zero()), ("vhat", from_zero())])
        } else {
            let dense = &[Var, Slot(0), Slot(1), Power(0), Power(1), N(0), N(1), N(2), N(3), Grad];
            rule("Adam", dense, sparse).slots([("m", from_zero()), ("v", from_zero())])
        };
        let (rate, epsilon) = (&o.learning_rate, &o.epsilon);
        let hyper = [("learning_rate", rate), ("beta1", &o.beta1), ("beta2", &o.beta2), ("epsilon", epsilon)];
        Ok(rule.hyper(hyper).powers([("beta1_power", 1), ("beta2_power", 2)]))
    }
}

optimizer! {
    /// AdaMax: Adam with the largest recent gradient instead of the average of squares.
    AdaMax, "AdaMax", new(learning_rate: Scalar), {
        /// Sets the decay of the average of gradients; 0.9 by default.
        beta1: Scalar = Scalar::Fixed(0.9),
        /// Sets the decay of the largest gradient; 0.999 by default.
        beta2: Scalar = Scalar::Fixed(0.999),
        /// Sets the number that prevents divisions by zero; 1e-8 by default.
        epsilon: Scalar = Scalar::Fixed(1e-8),
    }
    |o, rule| {
        let dense = &[Var, Slot(0), Slot(1), Power(0), N(0), N(1), N(2), N(3), Grad];
        let (rate, epsilon) = (&o.learning_rate, &o.epsilon);
        let hyper = [("learning_rate", rate), ("beta1", &o.beta1), ("beta2", &o.beta2), ("epsilon", epsilon)];
        Ok(rule("AdaMax", dense, Sparse::Nodes(SparseUpdate::AdaMax))
            .hyper(hyper)
            .powers([("beta1_power", 1), ("beta2_power", 2)])
            .slots([("m", from_zero()), ("v", from_zero())]))
    }
}

optimizer! {
    /// RMSProp: steps are scaled by a moving average of the gradient's square, with momentum.
    RmsProp, "RMSProp", new(learning_rate: Scalar), {
        /// Sets the decay of the average; 0.9 by default.
        decay: Scalar = Scalar::Fixed(0.9),
        /// Sets the momentum; 0 by default.
        momentum: Scalar = Scalar::Fixed(0.0),
        /// Sets the number that prevents divisions by zero; 1e-10 by default.
        epsilon: Scalar = Scalar::Fixed(1e-10),
        /// Sets whether to scale by the variance instead of the square; `false` by default.
        centered: bool = false,
    }
    |o, rule| {
        let rms = ("rms", Start::SlotScope(ones()));
        let rule = if o.centered {
            let dense = &[Var, Slot(1), Slot(0), Slot(2), N(0), N(1), N(2), N(3), Grad];
            let sparse = Sparse::Op(&[Var, Slot(1), Slot(0), Slot(2), N(0), N(1), N(2), N(3), Grad, Indices]);
            rule("CenteredRMSProp", dense, sparse).slots([rms, ("mg", from_zero()), ("momentum", from_zero())])
        } else {
            let dense = &[Var, Slot(0), Slot(1), N(0), N(1), N(2), N(3), Grad];
            let sparse = Sparse::Op(&[Var, Slot(0), Slot(1), N(0), N(1), N(2), N(3), Grad, Indices]);
            rule("RMSProp", dense, sparse).slots([rms, ("momentum", from_zero())])
        };
        let (rate, epsilon) = (&o.learning_rate, &o.epsilon);
        let hyper = [("learning_rate", rate), ("decay", &o.decay), ("momentum", &o.momentum), ("epsilon", epsilon)];
        Ok(rule.hyper(hyper))
    }
}

optimizer! {
    /// FTRL ("follow the regularized leader"), for linear models.
    Ftrl, "Ftrl", new(learning_rate: Scalar), {
        /// Sets the exponent by which the learning rate falls, negative or zero; -0.5 by default.
        learning_rate_power: f64 = -0.5,
        /// Sets the initial value of the sums of squares; 0.1 by default.
        initial_accumulator: f64 = 0.1,
        /// Sets the strength of L1 regularization; 0 by default.
        l1: Scalar = Scalar::Fixed(0.0),
        /// Sets the strength of L2 regularization; 0 by default.
        l2: Scalar = Scalar::Fixed(0.0),
        /// Sets the strength of L2 regularization of the loss only, which does not enter the accumulators; 0 by default.
        l2_shrinkage: f64 = 0.0,
        /// Sets a number that is added to the denominator of the learning rate; 0 by default.
        beta: f64 = 0.0,
    }
    |o, rule| {
        let (start, power) = (o.initial_accumulator, o.learning_rate_power);
        check("initial_accumulator", start, start >= 0.0, "positive or zero")?;
        check("learning_rate_power", power, power <= 0.0, "negative or zero")?;
        check("l2_shrinkage", o.l2_shrinkage, o.l2_shrinkage >= 0.0, "positive or zero")?;
        check_strength("l1", &o.l1)?;
        check_strength("l2", &o.l2)?;
        let rule = if o.l2_shrinkage > 0.0 {
            let dense = &[Var, Slot(0), Slot(1), Grad, N(0), N(1), N(2), N(3), N(4)];
            let sparse = Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, N(0), N(1), N(2), N(3), N(4)]);
            rule("FtrlV2", dense, sparse)
        } else {
            let dense = &[Var, Slot(0), Slot(1), Grad, N(0), N(1), N(2), N(3)];
            let sparse = Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, N(0), N(1), N(2), N(3)]);
            rule("Ftrl", dense, sparse)
        };
        // TensorFlow multiplies ones, and the names of the nodes say so.
        let scaled = initializers::from_fn(move |scope, shape: &Shape, dtype, part| {
            crate::arithmetic::mul(scope, ones().build(scope, shape, dtype, part), start)
        });
        let rate = &o.learning_rate;
        let mut rule = rule.hyper([("learning_rate", rate), ("l1_regularization_strength", &o.l1)]);
        rule.hyper.push(Hyper::AdjustedL2 { l2: o.l2.clone(), beta: o.beta, rate: rate.clone() });
        if o.l2_shrinkage > 0.0 {
            rule = rule.hyper([("l2_shrinkage_regularization_strength", &Scalar::Fixed(o.l2_shrinkage))]);
        }
        Ok(rule
            .hyper([("learning_rate_power", &Scalar::Fixed(power))])
            .slots([("accum", Start::SlotScope(scaled)), ("linear", from_zero())]))
    }
}

optimizer! {
    /// Gradient descent with a proximal step for regularization.
    ProximalGradientDescent, "ProximalGradientDescent", new(learning_rate: Scalar), {
        /// Sets the strength of L1 regularization; 0 by default.
        l1: Scalar = Scalar::Fixed(0.0),
        /// Sets the strength of L2 regularization; 0 by default.
        l2: Scalar = Scalar::Fixed(0.0),
    }
    |o, rule| {
        let sparse = Sparse::Op(&[Var, N(0), N(1), N(2), Grad, Indices]);
        Ok(rule("ProximalGradientDescent", &[Var, N(0), N(1), N(2), Grad], sparse).hyper([
            ("learning_rate", &o.learning_rate),
            ("l1_regularization_strength", &o.l1),
            ("l2_regularization_strength", &o.l2),
        ]))
    }
}

optimizer! {
    /// Adagrad with a proximal step for regularization.
    ProximalAdagrad, "ProximalAdagrad", new(learning_rate: Scalar), {
        /// Sets the initial value of the sums of squares; 0.1 by default.
        initial_accumulator: f64 = 0.1,
        /// Sets the strength of L1 regularization; 0 by default.
        l1: Scalar = Scalar::Fixed(0.0),
        /// Sets the strength of L2 regularization; 0 by default.
        l2: Scalar = Scalar::Fixed(0.0),
    }
    |o, rule| {
        let start = o.initial_accumulator;
        check("initial_accumulator", start, start > 0.0, "positive")?;
        let sparse = Sparse::Op(&[Var, Slot(0), N(0), N(1), N(2), Grad, Indices]);
        Ok(rule("ProximalAdagrad", &[Var, Slot(0), N(0), N(1), N(2), Grad], sparse)
            .hyper([
                ("learning_rate", &o.learning_rate),
                ("l1_regularization_strength", &o.l1),
                ("l2_regularization_strength", &o.l2),
            ])
            .slots([("accumulator", Start::OptimizerScope(start))]))
    }
}

optimizer! {
    /// AddSign: steps are longer where the signs of the gradient and its moving average agree.
    AddSign, "AddSignOptimizer", new(learning_rate: Scalar), {
        /// Sets the scale of a step where the signs neither agree nor differ; 1 by default.
        alpha: Scalar = Scalar::Fixed(1.0),
        /// Sets the weight of the agreement, often a falling schedule; 1 by default.
        sign_decay: Scalar = Scalar::Fixed(1.0),
        /// Sets the decay of the average; 0.9 by default.
        beta: Scalar = Scalar::Fixed(0.9),
    }
    |o, rule| {
        let (rate, decay) = (&o.learning_rate, &o.sign_decay);
        let hyper = [("learning_rate", rate), ("beta", &o.beta), ("alpha", &o.alpha), ("sign_decay", decay)];
        let sparse = Sparse::Nodes(SparseUpdate::Sign { power: false });
        Ok(rule("AddSign", &[Var, Slot(0), N(0), N(2), N(3), N(1), Grad], sparse)
            .hyper(hyper)
            .slots([("m", from_zero())]))
    }
}

optimizer! {
    /// PowerSign: steps are longer by a power where the signs of the gradient and its moving average agree.
    PowerSign, "PowerSignOptimizer", new(learning_rate: Scalar), {
        /// Sets the base of the power; e by default.
        base: f64 = std::f64::consts::E,
        /// Sets the weight of the agreement, often a falling schedule; 1 by default.
        sign_decay: Scalar = Scalar::Fixed(1.0),
        /// Sets the decay of the average; 0.9 by default.
        beta: Scalar = Scalar::Fixed(0.9),
    }
    |o, rule| {
        check("base", o.base, o.base > 0.0, "positive")?;
        let (rate, decay, log) = (&o.learning_rate, &o.sign_decay, Scalar::Fixed(o.base.ln()));
        let hyper = [("learning_rate", rate), ("beta", &o.beta), ("logbase", &log), ("sign_decay", decay)];
        let sparse = Sparse::Nodes(SparseUpdate::Sign { power: true });
        Ok(rule("PowerSign", &[Var, Slot(0), N(0), N(2), N(3), N(1), Grad], sparse)
            .hyper(hyper)
            .slots([("m", from_zero())]))
    }
}
