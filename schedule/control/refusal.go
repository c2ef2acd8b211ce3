package control

import (
	"errors"
	"net/http"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/member"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// refusal is an error with its code.
type refusal struct {
	protocol.Refusal
	err error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refused(code protocol.Code, err error) error {
	return &refusal{protocol.Refusal{Code: code, Error: err.Error()}, err}
}

// asRefusal finds the code of an error of any package.
func asRefusal(err error) *refusal {
	var r *refusal
	var manual *member.ManualError
	code := protocol.Failed
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &manual):
		return &refusal{protocol.Refusal{Code: protocol.ByHand, Error: err.Error(), Steps: manual.Steps}, err}
	case errors.Is(err, member.ErrRuns), errors.Is(err, member.ErrUnproven), errors.Is(err, restore.ErrInUse):
		code = protocol.Running
	case errors.Is(err, restore.ErrNotStartable):
		code = protocol.Unstartable
	}
	return &refusal{protocol.Refusal{Code: code, Error: err.Error()}, err}
}

func (r *refusal) status() int {
	switch r.Code {
	case protocol.Forbidden:
		return http.StatusForbidden
	case protocol.NotFound:
		return http.StatusNotFound
	case protocol.BadRequest:
		return http.StatusBadRequest
	case protocol.OtherMember:
		return http.StatusMisdirectedRequest
	case protocol.NotOffered, protocol.ByHand:
		return http.StatusNotImplemented
	case protocol.Failed:
		return http.StatusInternalServerError
	default:
		return http.StatusConflict
	}
}
