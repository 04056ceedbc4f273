// Package settings is what a node is told: its devices, who may use it, how programs share it, and
// what each of them may take. It checks that a node could start with that, and says what has changed
// between two versions of it. It knows neither the file that settings are written in nor the daemon
// that follows them.
package settings
