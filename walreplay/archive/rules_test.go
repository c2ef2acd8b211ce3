package archive

import (
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// Each test that the rules of this package and of segment name exists.
func TestRules_NameTestsThatExist(t *testing.T) { storetest.CheckRules(t, ".", "../segment") }
