"""Functions whose nodes and variables lie on several tasks: called, nested, in conditions and in loops."""

from report import show, v1

import tensorflow as tf


def run(cluster):
    v1.enable_control_flow_v2()
    for scenario in [calls, conditions, loops, nested, references, fed]:
        with tf.Graph().as_default():
            fetches, feed = scenario()
            with v1.Session(cluster.target()) as sess:
                sess.run(v1.global_variables_initializer())
                for turn in range(2):
                    for label, fetch in fetches.items():
                        show(f"{scenario.__name__}, turn {turn}, {label}", sess.run(fetch, feed))
    v1.disable_control_flow_v2()


def variables(name, use_resource=True):
    found = []
    for task, values in enumerate([[1.0, 2.0], [3.0, 5.0]]):
        with v1.device(f"/job:ps/task:{task}"):
            found.append(v1.get_variable(f"{name}{task}", initializer=values, use_resource=use_resource))
    return found


def calls():
    a, b = variables("call")
    x = v1.placeholder(tf.float32, [2])

    @tf.function
    def scale(x):
        with v1.device("/job:worker/task:1"):
            scaled = x * a
        b.assign_add(scaled)
        return scaled + 1.0, b.read_value()

    scaled, after = scale(x)
    with v1.control_dependencies([after]):
        twice = scale(scaled)
    return {"once and twice": [scaled, after, twice]}, {x: [1.0, 1.0]}


def conditions():
    a, b = variables("condition")
    choice = v1.placeholder(tf.bool, [])
    number = v1.placeholder(tf.int32, [])

    def far():
        with v1.device("/job:ps/task:2"):
            return b.read_value() * 2.0

    def update():
        with v1.control_dependencies([a.assign_add([1.0, 1.0])]):
            return a.read_value()

    one_of_two = tf.cond(choice, far, lambda: a.read_value() - 1.0)
    other = tf.cond(tf.logical_not(choice), far, update)
    one_of_three = tf.switch_case(number, [far, lambda: a + b, lambda: a * 1.0])
    return {"of two": [one_of_two, other], "of three": one_of_three}, {choice: True, number: 1}


def loops():
    a, b = variables("loop")

    def multiply(i, x):
        with v1.device("/job:ps/task:1"):
            return i + 1, x * b.read_value() + a

    def count(i, x):
        with v1.control_dependencies([b.assign_add([1.0, 1.0])]):
            return i + 1, tf.identity(x + a)

    product = tf.while_loop(lambda i, x: i < 6, multiply, [tf.constant(0), a.read_value()])
    counted = tf.while_loop(lambda i, x: i < 6, count, [tf.constant(0), a.read_value()])
    with v1.control_dependencies([counted[1]]):
        after = b.read_value()
    return {"product": product, "updates": [counted, after]}, {}


def nested():
    a, b = variables("nested")
    x = v1.placeholder(tf.float32, [2])

    @tf.function
    def choose(x):
        return tf.cond(tf.reduce_sum(x) > 3.0, lambda: x * a, lambda: x - b)

    @tf.function
    def repeat(x):
        for _ in tf.range(3):
            x = choose(x)
        return x

    return {"a function of a loop of a condition": repeat(x)}, {x: [9.0, 1.0]}


def references():
    a, b = variables("reference", use_resource=False)

    @tf.function
    def add(x, y):
        with v1.device("/job:ps/task:2"):
            return x + y

    with v1.device("/job:worker/task:1"):
        before = tf.identity(a.read_value())
        with v1.control_dependencies([before]):
            update = v1.assign_add(a, add(a.read_value(), b.read_value()))
        with v1.control_dependencies([update]):
            after = tf.identity(a.read_value())
    return {"before and after": [before, after]}, {}


def fed():
    """Results of calls and conditionals that are fed: what takes them takes the feeds. Stock cannot do it with variables."""
    x = v1.placeholder(tf.float32, [2])
    first, second = tf.function(lambda x: (x * 2.0, x + 3.0))(x)
    chosen = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 3.0, lambda: x - 1.0)
    with v1.device("/job:ps/task:1"):
        far = first - chosen
    sums = [first + 1.0, second + first, chosen * 2.0, chosen + second, far]
    return {"results": sums}, {x: [1.0, 1.0], first: [10.0, 20.0], chosen: [0.5, 0.25]}
