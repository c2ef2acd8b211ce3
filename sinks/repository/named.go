package repository

import (
	"context"
	"fmt"
)

// belongs refuses a document of a newer format, and one that is not called what its
// content says: it was moved or copied there. About says what it is of.
func (r *Repository) belongs(name string, format int, calledSo bool, about string) error {
	switch {
	case format != Format:
		return fmt.Errorf("%s in %s has format %d; this version of requorum reads format %d: use a newer one", name, r, format, Format)
	case !calledSo:
		return fmt.Errorf("%s in %s: %w: it is %s: it was moved or copied here", name, r, ErrAltered, about)
	}
	return nil
}

// namesBelow lists the names under a prefix that are of a kind, which what calls in
// the plural; others are passed over.
func (r *Repository) namesBelow(ctx context.Context, prefix, what string, ofKind func(name string) bool) ([]string, error) {
	var all []string
	for obj, err := range r.sink.List(ctx, prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list the %s in %s: %w", what, r, err)
		}
		if ofKind(obj.Name) {
			all = append(all, obj.Name)
		}
	}
	return all, nil
}
