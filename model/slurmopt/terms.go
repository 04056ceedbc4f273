package slurmopt

import (
	"errors"
	"fmt"
	"strconv"

	"muster/model"
)

// termsTable has Muster's options about how a job has its GPUs. They are the job's, not a request's.
func termsTable() []option {
	return []option{
		attribute("gpu-reach", 0, "node", (*parser).setReach),
		attribute("gpu-beyond", 0, "4G", (*parser).setBeyond),
		attribute("gpu-class", 0, "latency", (*parser).setClass),
		attribute("gpu-weight", 0, "2", (*parser).setWeight),
		attribute("mapping", 0, "ag", func(p *parser, value string) error {
			p.saidTerms("mapping")
			if value == "" {
				return errors.New("it is empty: name a mapper, or leave it out")
			}
			return textOf(func(o *Options) *string { return &o.GPU.Mapping })(p, value)
		}),
	}
}

// said is an option with the word that gave it.
type said struct {
	option string
	at     *Word
}

func (p *parser) saidTerms(option string) { p.terms = said{option, p.here()} }

func (p *parser) setReach(value string) error {
	p.saidTerms("gpu-reach")
	r, err := model.ParseReach(value)
	p.options.GPU.Reach = &r
	return err
}

// setBeyond reads a size as other options do, plain numbers as megabytes.
func (p *parser) setBeyond(value string) error {
	p.beyondAt = p.here()
	n := uint64(model.AllBeyond)
	if value != "all" {
		bytes, err := parseMemory(value)
		if err != nil {
			return fmt.Errorf("%w, or all", err)
		}
		n = min(n, uint64(bytes))
	}
	p.options.GPU.Beyond = &n
	return nil
}

func (p *parser) setClass(value string) error {
	p.saidTerms("gpu-class")
	if value == "" {
		return errors.New("it is empty: write latency or batch")
	}
	p.options.GPU.Class = value
	return model.Turns{Class: value}.Validate()
}

func (p *parser) setWeight(value string) error {
	p.saidTerms("gpu-weight")
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > model.MaxWeight {
		return fmt.Errorf("%.40q is no weight: write 1 to %d", value, model.MaxWeight)
	}
	p.options.GPU.Weight = n
	return nil
}

// checkTerms refuses terms for GPUs that no request asks for.
func (p *parser) checkTerms() error {
	o := &p.options
	gpus, shares := false, false
	for _, r := range append([]model.Request{o.Request}, o.Alternatives...) {
		gpus = gpus || r.TotalGPUs() > 0
		shares = shares || r.GPUs > 0 && r.GPUMemory > 0 || r.Remote != nil && r.Remote.Shared
	}
	if b := o.GPU.Beyond; b != nil && *b > 0 && !shares {
		return p.beyondAt.errorf("--gpu-beyond: whole GPUs have no memory beyond them: ask for shares with --gres=gpu:1:4G, or leave it out")
	}
	if p.terms.at != nil && !gpus {
		return p.terms.at.errorf("--%s: the job asks for no GPUs: ask for some with --gres=gpu:1 or --gres=rgpu:1, or leave it out", p.terms.option)
	}
	return nil
}

// TermsWords are the options that terms are written as.
func TermsWords(t *model.Terms) []string {
	var words []string
	if t.Reach != nil {
		words = append(words, "--gpu-reach="+t.Reach.String())
	}
	if t.Beyond != nil {
		text := memoryText(int64(*t.Beyond))
		switch *t.Beyond {
		case 0:
			text = "0"
		case model.AllBeyond:
			text = "all"
		}
		words = append(words, "--gpu-beyond="+text)
	}
	if t.Class != "" {
		words = append(words, "--gpu-class="+t.Class)
	}
	if t.Weight != 0 {
		words = append(words, "--gpu-weight="+strconv.Itoa(t.Weight))
	}
	if t.Mapping != "" {
		words = append(words, "--mapping="+t.Mapping)
	}
	return words
}
