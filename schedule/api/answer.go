package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"unicode"
)

// answer sends v as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client has gone
}

// refuse says why not.
func refuse(w http.ResponseWriter, code int, why string) {
	answer(w, code, struct {
		Error string `json:"error"`
	}{why})
}

// oneLine keeps what others wrote from looking like lines of ours.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
