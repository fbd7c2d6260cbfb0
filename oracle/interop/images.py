"""From JPEG files to a step of a convolutional network, in one session on the server."""

from report import session, show, v1

import numpy as np
import tensorflow as tf


def run(target):
    files, labels = pictures(12)
    contents = v1.placeholder(tf.string, [None])
    classes = v1.placeholder(tf.int64, [None])

    def decode(file):
        image = tf.io.decode_jpeg(file, channels=3)
        return tf.image.resize(image, [16, 16], antialias=False)

    images = tf.map_fn(decode, contents, fn_output_signature=tf.float32)
    random = np.random.RandomState(1)
    kernel = v1.get_variable("kernel", initializer=np.float32(random.randn(3, 3, 3, 4) * 0.2), use_resource=True)
    dense = v1.get_variable("dense", initializer=np.float32(random.randn(4 * 64, 3) * 0.1), use_resource=True)
    hidden = tf.nn.relu(tf.nn.conv2d(images / 255.0, kernel, 1, "SAME"))
    pooled = tf.nn.max_pool2d(hidden, 2, 2, "SAME")
    logits = tf.matmul(tf.reshape(pooled, [-1, 4 * 64]), dense)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits))
    train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with session(target) as s:
        s.run(v1.global_variables_initializer())
        feed = {contents: files, classes: labels}
        pixels = s.run(images, feed)
        show("pixels", [pixels.shape, float(pixels.sum(dtype=np.float64)), pixels[3, 5, 7].tolist()])
        for step in range(8):
            value, _ = s.run([loss, train], feed)
            show(f"loss {step}", f"{value:.4f}")


def pictures(count):
    """Files of three kinds of pictures, of several sizes, and the kinds."""
    files, labels = [], []
    with tf.Graph().as_default(), v1.Session() as local:
        pixels = v1.placeholder(tf.uint8)
        encoded = [
            tf.io.encode_jpeg(pixels, quality=quality, chroma_downsampling=sampled, progressive=progressive)
            for quality, sampled, progressive in ((90, True, False), (60, False, False), (80, True, True))
        ]
        for number in range(count):
            kind = number % 3
            height, width = 20 + 3 * number, 50 - 2 * number
            y, x = np.mgrid[0:height, 0:width]
            wave = [np.sin(x / 3), np.sin(y / 3), np.sin((x + y) / 4)][kind]
            noise = np.random.RandomState(number).randn(height, width, 3)
            picture = np.clip(128 + 80 * wave[..., None] + 20 * noise, 0, 255).astype(np.uint8)
            files.append(local.run(encoded[number // 3 % 3], {pixels: picture}))
            labels.append(kind)
    return files, labels
