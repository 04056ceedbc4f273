// Package statefolder is where a daemon writes down what the next one must know, should it be killed
// or hand over: whole files, slots that are written often, and the locks of devices. It knows nothing
// about what is written there.
package statefolder
