package schedule

import (
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// Each test that the rules of this package and of job name exists.
func TestRules_NameTestsThatExist(t *testing.T) { storetest.CheckRules(t, ".", "job") }
