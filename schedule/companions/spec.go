package companions

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// Spec lists a file, or a folder with all that is in it.
type Spec struct {
	Name string // what it is called in backups, such as pki
	Path string // absolute
}

// Check refuses what cannot be stored under any circumstances; all faults at once.
// It looks at no file.
func Check(specs []Spec) error {
	var faults []error
	names := map[string]bool{}
	for _, s := range specs {
		switch err := repository.ValidCompanionName(s.Name); {
		case err != nil:
			faults = append(faults, err)
		case names[s.Name]:
			faults = append(faults, fmt.Errorf("there are two companions %q: give each a name of its own", s.Name))
		}
		names[s.Name] = true
		if !filepath.IsAbs(s.Path) {
			faults = append(faults, fmt.Errorf("companion %q: path %q is not absolute", s.Name, s.Path))
		}
	}
	return errors.Join(faults...)
}

// Sources are what a snapshot.Request takes: they read the files each time.
func Sources(specs []Spec) ([]snapshot.CompanionSource, error) {
	if err := Check(specs); err != nil {
		return nil, err
	}
	var all []snapshot.CompanionSource
	for _, s := range specs {
		all = append(all, &source{s})
	}
	return all, nil
}
