package stream

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// serverLog passes the server's log on, and remembers what the server says
// nowhere else: why it could not start, or could not read a stream.
type serverLog struct {
	to *slog.Logger

	mu      sync.Mutex
	fatal   error
	warning string
}

// Noticef logs what an operator may want to know.
func (l *serverLog) Noticef(format string, args ...any) { l.to.Info(line(format, args)) }

// Warnf logs what is wrong but can be lived with.
func (l *serverLog) Warnf(format string, args ...any) {
	l.mu.Lock()
	l.warning = line(format, args)
	l.mu.Unlock()
	l.to.Warn(line(format, args))
}

// Errorf logs a failure.
func (l *serverLog) Errorf(format string, args ...any) { l.to.Error(line(format, args)) }

// Fatalf remembers why the server gives up; it does not end the process.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = errors.New(line(format, args))
	}
}

// Debugf logs what only the server's own developers want to know.
func (l *serverLog) Debugf(format string, args ...any) { l.to.Debug(line(format, args)) }

// Tracef is never called: tracing is off.
func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) fatalError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) lastWarning() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.warning
}

func line(format string, args []any) string {
	return strings.TrimSpace(fmt.Sprintf(format, args...))
}
