"""VOC detection: a backbone goes in, a Faster R-CNN fine-tuned from it and what it finds come out (section 4.2)."""
