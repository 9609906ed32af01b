package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// How long one profile is. A scenario's length is not known before, and a profile that is cut is lost; pprof adds up
// the files that it is given.
const profileSeconds = 3

// Profiles the API server's processor time until the returned function is called, which waits for the last profile.
func (r *runner) profile(ctx context.Context, scenario string) func() error {
	if r.Profiles == "" {
		return func() error { return nil }
	}
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		failed <- func() error {
			for {
				r.profiles++
				name := fmt.Sprintf("%s-%s-%d-%02d.pb.gz", scenario, r.Name, r.Round, r.profiles)
				if err := r.server.saveProfile(ctx, filepath.Join(r.Profiles, name)); err != nil {
					return err
				}
				select {
				case <-stop:
					return nil
				default:
				}
			}
		}()
	}()
	return func() error {
		close(stop)
		return <-failed
	}
}

func (s *server) saveProfile(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	profile, err := s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
	if err != nil {
		return err
	}
	return os.WriteFile(file, profile, 0o644)
}
