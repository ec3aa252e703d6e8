package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/cmd/internal/check"
)

// keep writes the three books to a file, for users who want to check more than the rules, or have better
// rules.
func keep(path string, h *check.History) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the books: %w", err)
	}
	packed := gzip.NewWriter(file)
	if err := errors.Join(json.NewEncoder(packed).Encode(h), packed.Close(), file.Close()); err != nil {
		return fmt.Errorf("keep the books: %w", err)
	}
	return nil
}

// judgeAgain checks the books of an earlier run.
func judgeAgain(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the books: %w", err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("open the books in %s: %w", path, err)
	}
	var h check.History
	if err := json.NewDecoder(packed).Decode(&h); err != nil {
		return fmt.Errorf("read the books in %s: %w", path, err)
	}
	var s session
	s.report.Figures, s.report.Violations = check.Judge(&h)
	s.say("%+v", s.report.Figures)
	if s.rules() {
		return errBroken
	}
	return nil
}
