package storetest

import "os"

// Soak tells whether the long forms of tests are asked for: REQUORUM_SOAK=1, as
// `make soak` sets it.
func Soak() bool { return os.Getenv("REQUORUM_SOAK") == "1" }

// Some are all of the versions in a soak, and otherwise those given.
func Some(versions ...string) []string {
	if Soak() {
		return Versions()
	}
	return versions
}
