package protocol

import "github.com/requorum/requorum/schedule/control/flagfile"

// FlagsDone is what was done to the flags that a member is started with.
type FlagsDone struct {
	// In is where they stand, and Kept the file with the old text; empty where nothing
	// was changed.
	In   string `json:"in"`
	Kept string `json:"kept,omitempty"`
	// Changes were made, or, where ByHand says why not from here, are to be made by
	// hand.
	Changes []flagfile.Change `json:"changes,omitempty"`
	ByHand  string            `json:"by_hand,omitempty"`
}
