package repository_test

import (
	"testing"

	"github.com/requorum/requorum/sinks/repository"
)

func TestCanaryName(t *testing.T) {
	const fingerprint = "00ff123456789abc"
	if got, err := repository.ParseCanaryName(repository.CanaryName(fingerprint)); err != nil || got != fingerprint {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"", "canary/", "canary/.age", "canary/00ff123456789ab.age", "canary/00FF123456789abc.age", "canary/00ff123456789abc", "00ff123456789abc.age", "canary/x/00ff123456789abc.age"} {
		if got, err := repository.ParseCanaryName(name); err == nil {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
}
