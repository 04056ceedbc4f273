// Package cli has what the commands share: how they end, what they say of wrong usage, flags that many
// have, completion, and the words that users choose from. It knows no command.
package cli
