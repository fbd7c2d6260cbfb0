"""Models of sounds and pictures: spectrograms, sequences without alignment, augmented images."""

from report import session, show, v1

import numpy as np
import tensorflow as tf


def run(target):
    for part in (spectrograms, stft_model, sequences, augmentation):
        print(f"-- {part.__name__}", flush=True)
        with tf.Graph().as_default():
            v1.set_random_seed(12)
            part(target)


def initial(name, *shape):
    values = np.random.RandomState(sum(map(ord, name))).uniform(-0.5, 0.5, shape).astype(np.float32).round(3)
    return v1.get_variable(name, initializer=values, use_resource=True)


def rounded(values):
    return [f"{value:.3f}" for value in np.ravel(values)]


def sounds(count=6, samples=1200):
    """Tones of two kinds, and which."""
    time = np.arange(samples) / 4000
    random = np.random.RandomState(6)
    kinds = np.arange(count) % 2
    tones = [np.sin(2 * np.pi * (300 + 500 * kind + 20 * n) * time) for n, kind in enumerate(kinds)]
    return np.float32(tones) * 0.5 + random.uniform(-0.1, 0.1, [count, samples]).astype(np.float32), kinds


def spectrograms(target):
    """WAV files, spectrograms and MFCCs, a convolutional network."""
    waves, kinds = sounds()
    contents, labels = v1.placeholder(tf.string, [None]), v1.placeholder(tf.int64, [None])

    def features(content):
        sound = tf.audio.decode_wav(content, desired_channels=1)
        spectrum = tf.raw_ops.AudioSpectrogram(input=sound.audio, window_size=256, stride=128, magnitude_squared=True)
        return tf.raw_ops.Mfcc(spectrogram=spectrum, sample_rate=sound.sample_rate, upper_frequency_limit=1900.0)[0]

    images = tf.map_fn(features, contents, fn_output_signature=tf.float32)[..., None]
    images = tf.ensure_shape(images, [None, 8, 13, 1]) / 20.0
    hidden = tf.nn.relu(tf.nn.conv2d(images, initial("filters", 3, 3, 1, 4), [1, 1, 2, 1], "SAME"))
    pooled = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
    logits = tf.matmul(tf.reshape(pooled, [-1, 4 * 3 * 4]), initial("dense", 48, 2))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    encode = tf.audio.encode_wav(v1.placeholder(tf.float32, [None, 1], name="wave"), 4000)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        files = [sess.run(encode, {"wave:0": wave[:, None]}) for wave in waves]
        show("files", [len(file) for file in files])
        feed = {contents: files, labels: kinds}
        show("features", rounded(sess.run(images, feed)[0, :2]))
        for _ in range(4):
            show("loss", rounded(sess.run([loss, train], feed)[0]))


def stft_model(target):
    """Frames, windows, Fourier transforms and mel scales of `tf.signal`, differentiated through."""
    waves, kinds = sounds(4, 600)
    given = v1.placeholder(tf.float32, [None, 600])
    gain = v1.get_variable("gain", initializer=np.float32(1.5), use_resource=True)
    spectrum = tf.abs(tf.signal.stft(given * gain, frame_length=128, frame_step=64, fft_length=128))
    mel = tf.tensordot(spectrum, tf.signal.linear_to_mel_weight_matrix(10, 65, 4000, 80.0, 1800.0), 1)
    log = tf.math.log(mel + 0.01)
    cepstrum = tf.signal.mfccs_from_log_mel_spectrograms(log)[..., :6]
    score = tf.reduce_mean(cepstrum, [1, 2])
    loss = tf.reduce_mean((score - tf.constant(np.float32(kinds))) ** 2)
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
    back = tf.signal.inverse_stft(tf.signal.stft(given, 128, 64), 128, 64)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        feed = {given: waves}
        show("cepstrum", rounded(sess.run(cepstrum, feed)[0, 0]))
        for _ in range(3):
            show("loss", rounded(sess.run([loss, gain, train], feed)[:2]))
        show("back", rounded(sess.run(back, feed)[1, 100:110]))


def sequences(target):
    """A recurrent network trained with CTC, and both decoders of what it says."""
    batch, steps, inputs, units, classes = 3, 8, 5, 6, 4
    random = np.random.RandomState(8)
    frames = random.uniform(-1, 1, [steps, batch, inputs]).astype(np.float32).round(3)
    lengths = np.int32([8, 6, 7])
    wanted = v1.SparseTensorValue(
        [[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [2, 2]], np.int32([0, 1, 2, 1, 1, 0]), [3, 3]
    )
    labels = v1.sparse_placeholder(tf.int32)
    zeros = tf.zeros([batch, units])
    blocks = tf.raw_ops.BlockLSTMV2(
        seq_len_max=tf.constant(steps, tf.int64),
        x=tf.constant(frames),
        cs_prev=zeros,
        h_prev=zeros,
        w=initial("cells", inputs + units, 4 * units),
        wci=tf.zeros([units]),
        wcf=tf.zeros([units]),
        wco=tf.zeros([units]),
        b=initial("cell_bias", 4 * units),
    )
    logits = tf.tensordot(blocks.h, initial("out", units, classes), 1)
    losses = v1.nn.ctc_loss(labels, logits, lengths, preprocess_collapse_repeated=False)
    loss = tf.reduce_mean(losses)
    train = v1.train.MomentumOptimizer(0.3, 0.9).minimize(loss)
    greedy, greedy_score = tf.nn.ctc_greedy_decoder(logits, lengths)
    beams, beam_scores = v1.nn.ctc_beam_search_decoder(logits, lengths, beam_width=4, top_paths=2)
    distance = tf.edit_distance(tf.cast(greedy[0], tf.int32), labels)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        feed = {labels: wanted}
        for _ in range(6):
            show("losses", rounded(sess.run([losses, train], feed)[0]))
        show("greedy", [*sess.run(greedy[0], feed), rounded(sess.run(greedy_score, feed))])
        show("beams", [list(each) for each in sess.run(beams, feed)])
        show("scores", rounded(sess.run(beam_scores, feed)))
        show("distance", rounded(sess.run(distance, feed)))


def augmentation(target):
    """Every change that programs make to pictures, with seeds, and a step on the result."""
    y, x, channel = np.mgrid[0:24, 0:20, 0:3]
    picture = np.stack([((x * 9 + y * (5 + n) + channel * 60) % 256).astype(np.uint8) for n in range(2)])
    images = v1.placeholder(tf.uint8, [None, 24, 20, 3])
    floats = tf.image.convert_image_dtype(images, tf.float32)
    seed = tf.constant([3, 4])
    changed = {
        "flip": tf.image.stateless_random_flip_left_right(floats, seed),
        "brightness": tf.image.stateless_random_brightness(floats, 0.3, seed),
        "contrast": tf.image.stateless_random_contrast(floats, 0.5, 1.5, seed),
        "hue": tf.image.stateless_random_hue(floats, 0.2, seed),
        "saturation": tf.image.stateless_random_saturation(floats, 0.5, 2.0, seed),
        "crop": tf.image.stateless_random_crop(floats, [2, 16, 16, 3], seed),
        "quality": tf.cast(tf.image.stateless_random_jpeg_quality(images[0], 40, 90, seed), tf.float32),
        "gamma": tf.image.adjust_gamma(floats, 0.7),
        "rotated": tf.image.rot90(floats),
        "center": tf.image.central_crop(floats, 0.5),
        "padded": tf.image.resize_with_crop_or_pad(floats, 28, 16),
        "gray": tf.image.rgb_to_grayscale(floats),
        "hsv": tf.image.rgb_to_hsv(floats),
        "yuv": tf.image.rgb_to_yuv(floats),
        "standard": tf.image.per_image_standardization(floats),
        "total": tf.image.total_variation(floats),
        "patches": tf.image.extract_patches(floats, [1, 5, 5, 1], [1, 6, 6, 1], [1, 1, 1, 1], "VALID")[0, 1, 1],
        "boxes": tf.image.crop_and_resize(floats, [[0.1, 0.2, 0.9, 0.8], [0.5, 0.5, 1.2, 0.1]], [0, 1], [6, 5]),
        "drawn": tf.image.draw_bounding_boxes(floats, [[[0.1, 0.1, 0.6, 0.7]]] * 2, [[1.0, 0.0, 0.5]]),
        "glimpse": tf.image.extract_glimpse(floats, [5, 6], [[0.2, -0.3], [0.9, 0.9]], noise="zero"),
        "edges": tf.image.sobel_edges(floats)[0, 4, 5],
    }
    for method in ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"):
        changed[f"resize {method}"] = tf.image.resize(floats, [13, 31], method, antialias=method != "area")
    begin, size, box = tf.image.stateless_sample_distorted_bounding_box(
        [24, 20, 3], [[[0.1, 0.2, 0.8, 0.9]]], seed, 0.5
    )
    kernel = initial("kernel", 3, 3, 3, 2)
    learned = tf.reduce_mean(tf.nn.conv2d(changed["crop"], kernel, 1, "SAME") ** 2)
    train = v1.train.GradientDescentOptimizer(0.02).minimize(learned)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        feed = {images: picture}
        for name, value in sess.run(changed, feed).items():
            flat = value.astype(np.float64).ravel()
            show(name, [value.shape, rounded([flat.mean(), flat.std()]), rounded(flat[7:10])])
        show("box", [*sess.run([begin, size], feed), rounded(sess.run(box, feed))])
        for _ in range(3):
            show("learned", rounded(sess.run([learned, train], feed)[0]))
