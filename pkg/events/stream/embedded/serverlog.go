package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// serverLog forwards the server's log, and remembers two things that the server reports nowhere
// else: why it could not start, and why it could not read a stream.
type serverLog struct {
	to *slog.Logger

	mu      sync.Mutex
	fatal   error
	warning string
}

// Noticef logs what an operator may want to know.
func (l *serverLog) Noticef(format string, args ...any) { l.to.Info(line(format, args)) }

// Warnf logs a problem that does not stop the server, and remembers the last one.
func (l *serverLog) Warnf(format string, args ...any) {
	l.mu.Lock()
	l.warning = line(format, args)
	l.mu.Unlock()
	l.to.Warn(line(format, args))
}

// Errorf logs a failure.
func (l *serverLog) Errorf(format string, args ...any) { l.to.Error(line(format, args)) }

// Fatalf remembers why the server stops; it does not end the process.
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
