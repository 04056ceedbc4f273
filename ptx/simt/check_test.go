package simt_test

import "testing"

// The checker finds nothing wrong with the corpus, and changes nothing.
func TestCorpusChecked(t *testing.T) { runCorpus(t, options{checked: true, small: true}) }
