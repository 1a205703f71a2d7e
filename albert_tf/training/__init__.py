"""Jobs on tf.distribute."""
