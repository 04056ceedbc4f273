package units

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "4GiB": 4 << 30, "22GB": 22e9, "512M": 512 << 20, "4G": 4 << 30, "4g": 4 << 30,
		"1.5GB": 15e8, "1.5GiB": 3 << 29, "0.1KiB": 102, "2 TB": 2e12, "64kb": 64000, "1.50K": 1536, "7EiB": 7 << 60,
		"9223372036854775807": math.MaxInt64, " 1K ": 1024, "0.5": 1, "0.4": 0,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                      `size "": there is no number: write it as 4GiB, 22GB, 512M or plain bytes`,
		"-4GB":                  `size "-4GB": it is negative: write it as 4GiB, 22GB, 512M or plain bytes`,
		"4Gb":                   `size "4Gb": Gb may mean bits or bytes: write GB for bytes`,
		"4 giga":                `size "4 giga": write it as`,
		"GB":                    `there is no number`,
		"1.GB":                  `there is no number`,
		".5GB":                  `there is no number`,
		"1.2.3GB":               `there is no number`,
		"8EiB":                  `it is too large`,
		"9223372036854775808":   `it is too large`,
		"99999999999999999999":  `it is too large`,
		"16000000000GiB":        `it is too large`,
		"0.1234567890123456789": `more than 18 digits after the point`,
		"1e9":                   `write it as`,
		"4GB/s":                 `write it as`,
	} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %d, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 17: "17B", 22e9: "22GB", 4 << 30: "4GiB", 15e8: "1500MB", 3 << 29: "1536MiB", 1000 << 20: "1000MiB",
		-4096: "-4KiB", math.MaxInt64: "9223372036854775807B", math.MinInt64: "-8EiB", 1e18: "1EB",
	} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestBriefSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 10 << 10: "10 KiB", 1<<20 - 1: "1 MiB", 400_000_000: "381 MiB", 3 << 29: "1.5 GiB", math.MaxUint64: "16 EiB",
	} {
		if got := BriefSize(n); got != want {
			t.Errorf("BriefSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestParseBandwidth(t *testing.T) {
	for text, want := range map[string]int64{
		"10GB/s": 10e9, "1GiB/s": 1 << 30, "100Gbit/s": 125e8, "1.5Gbit/s": 1875e5, "12500": 12500, "8bit/s": 1, "7B/s": 7,
		"10gbit/s": 125e7,
	} {
		if got, err := ParseBandwidth(text); err != nil || got != want {
			t.Errorf("ParseBandwidth(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"10GB":     `bandwidth "10GB": write it as 10GB/s, 1GiB/s, 100Gbit/s or plain bytes per second`,
		"10G/s":    `write it as`,
		"10Gb/s":   `write it as`,
		"-1GB/s":   `it is negative`,
		"1ms":      `write it as`,
		"/s":       `write it as`,
		"99EB/s":   `it is too large`,
		"10Xbit/s": `write it as`,
	} {
		if got, err := ParseBandwidth(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseBandwidth(%q) = %d, %v; want an error with %q", text, got, err, want)
		}
	}
	if got := FormatBandwidth(10e9); got != "10GB/s" {
		t.Errorf("FormatBandwidth(10e9) = %q", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "0.5": 500 * time.Millisecond, "1:30:00": 90 * time.Minute, "1:30": 90 * time.Second,
		"90:00": 90 * time.Minute, "100:00:00": 100 * time.Hour, "2-12:00:00": 60 * time.Hour, "2-12": 60 * time.Hour,
		"1-02:03": 26*time.Hour + 3*time.Minute, "00:00.250": 250 * time.Millisecond, "1.2ms": 1200 * time.Microsecond,
		"90m": 90 * time.Minute, "1d": day, "1d12h": 36 * time.Hour, "5us": 5 * time.Microsecond, "5µs": 5 * time.Microsecond,
		"1 d 12 h": 36 * time.Hour, "1h0m0s": time.Hour, "30min": 30 * time.Minute, "3ns": 3, "1.5h": 90 * time.Minute,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    `time "": there is no number: write it as 90 (seconds), 1:30:00, 2-12:00:00, 90m, 1d12h or 1.2ms`,
		"-5":                  `it is negative`,
		"soon":                `there is no number`,
		"5 lightyears":        `"lightyears" is no unit of time`,
		"1h1d":                `units must go from large to small`,
		"1h2h":                `units must go from large to small`,
		"1:2:3:4":             `too many colons`,
		"1:75":                `75 is past the end of its field`,
		"1:60:00":             `60 is past the end of its field`,
		"1-24:00:00":          `24 is past the end of its field`,
		"1.5:00:00":           `only seconds may have a fraction`,
		"1:":                  `there is no number`,
		"1-":                  `there is no number`,
		"1h5":                 `"" is no unit of time`,
		"106752d":             `it is too large`,
		"106751-23:47:16.999": `it is too large`,
		"9223372037":          `it is too large`,
		"1--2":                `there is no number`,
	} {
		if got, err := ParseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDuration(%q) = %v, %v; want an error with %q", text, got, err, want)
		}
	}
	for _, text := range []string{"INFINITE", "unlimited"} {
		if _, err := ParseDuration(text); !errors.Is(err, ErrUnlimited) {
			t.Errorf("ParseDuration(%q) = %v, want ErrUnlimited", text, err)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "00:00:00", 26*time.Hour + 3*time.Minute + 4*time.Second: "1-02:03:04", 90 * time.Second: "00:01:30",
		1200 * time.Microsecond: "00:00:00.0012", -time.Second: "-00:00:01", math.MaxInt64: "106751-23:47:16.854775807",
		math.MinInt64: "-106751-23:47:16.854775808",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"4GiB", "22GB", "1.5G", "10GB/s", "100Gbit/s", "1-02:03:04", "1d12h", "1.2ms", "106751-23:47:16.854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil {
			if again, err := ParseSize(FormatSize(n)); n < 0 || err != nil || again != n {
				t.Errorf("size %q: %d came back as %d, %v", s, n, again, err)
			}
		}
		if n, err := ParseBandwidth(s); err == nil {
			if again, err := ParseBandwidth(FormatBandwidth(n)); n < 0 || err != nil || again != n {
				t.Errorf("bandwidth %q: %d came back as %d, %v", s, n, again, err)
			}
		}
		if d, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(FormatDuration(d)); d < 0 || err != nil || again != d {
				t.Errorf("time %q: %d came back as %d, %v", s, d, again, err)
			}
		}
	})
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{"1 seed": Plural(1, "seed"), "2 seeds": Plural(2, "seed"), "0 jobs": Plural(0, "job"), "2 processes": Plural(2, "process")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
